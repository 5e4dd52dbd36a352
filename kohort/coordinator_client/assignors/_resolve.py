"""The assignors of the option ``partition_assignment_strategy``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from kohort.coordinator_client.assignors._base import (
    BuiltInAssignor,
    PartitionAssignor,
    common_protocol,
)
from kohort.coordinator_client.assignors._range import RangeAssignor
from kohort.coordinator_client.assignors._roundrobin import RoundRobinAssignor
from kohort.coordinator_client.assignors._sticky import CooperativeStickyAssignor, StickyAssignor
from kohort.errors import InvalidOptionError

_OPTION = "partition_assignment_strategy"

BUILT_IN: tuple[type[BuiltInAssignor], ...] = (
    RangeAssignor,
    CooperativeStickyAssignor,
    StickyAssignor,
    RoundRobinAssignor,
)
"""The assignors of kohort. They run in the event loop, others on the caller's thread."""

_BY_NAME: dict[str, type[PartitionAssignor]] = {
    "range": RangeAssignor,
    "rangeassignor": RangeAssignor,
    "rangepartitionassignor": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "roundrobinassignor": RoundRobinAssignor,
    "roundrobinpartitionassignor": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "stickyassignor": StickyAssignor,
    "stickypartitionassignor": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
    "cooperativestickyassignor": CooperativeStickyAssignor,
}
"""Kafka's own names, and the class names of the Java client, kafka-python and aiokafka."""


def is_built_in(assignor: PartitionAssignor) -> TypeGuard[BuiltInAssignor]:
    """True if the assignor is one of kohort's classes and not of a subclass."""
    return type(assignor) in BUILT_IN


def _resolve_one(entry: object) -> PartitionAssignor:
    if isinstance(entry, PartitionAssignor):
        return entry
    if isinstance(entry, type) and issubclass(entry, PartitionAssignor):
        return entry()
    if isinstance(entry, str):
        short = entry.rpartition(".")[2]
        found = _BY_NAME.get(short.lower())
        if found is not None:
            return found()
        from difflib import get_close_matches  # imported here, because only this error needs it

        near = get_close_matches(short.lower(), _BY_NAME, n=1)
        hint = f", did you mean {_BY_NAME[near[0]].name!r}?" if near else "."
        known = ", ".join(repr(assignor.name) for assignor in BUILT_IN)
        raise InvalidOptionError(
            f"{_OPTION}: unknown assignor {entry!r}{hint} The built-in assignors are {known}"
        )
    raise InvalidOptionError(
        f"{_OPTION}: {entry!r} is neither a name nor a subclass or instance of "
        "kohort's PartitionAssignor"
    )


def resolve_assignors(strategy: object) -> tuple[PartitionAssignor, ...]:
    """Return the assignors of one name, class or instance, or of several in order of preference.

    Raise InvalidOptionError if an entry is not an assignor, or if there are none. Also raise it if
    two have the same name, or if they have no rebalance protocol in common.
    """
    single = isinstance(strategy, str | type | PartitionAssignor)
    entries = [strategy] if single or not isinstance(strategy, Iterable) else list(strategy)
    assignors = tuple(_resolve_one(entry) for entry in entries)
    if not assignors:
        raise InvalidOptionError(f"{_OPTION} is empty. Name at least one assignor, such as 'range'")
    names = [assignor.name for assignor in assignors]
    if len(set(names)) < len(names):
        raise InvalidOptionError(f"{_OPTION} names an assignor twice: {', '.join(names)}")
    if common_protocol(assignors) is None:
        raise InvalidOptionError(
            f"{_OPTION}: {', '.join(names)} share no rebalance protocol. All must support EAGER, "
            "or all must support COOPERATIVE"
        )
    return assignors
