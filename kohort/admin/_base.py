"""The parts of both admin clients that neither wait nor send requests: options and arguments."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from kohort.admin._members import MemberToRemove
from kohort.admin._plan import ResetPlan
from kohort.admin._topics import ConfigResource, NewTopic
from kohort.config import (
    ADMIN_OPTIONS,
    OPTIONS,
    ConsumerConfig,
    FetchConfig,
    GroupConfig,
    conceal_properties,
)
from kohort.consumer.api import _arguments
from kohort.consumer.driver._driver import Driver, DriverOwner
from kohort.errors import InvalidOptionError, UnsupportedOptionError
from kohort.logs import get_logger
from kohort.types import TopicPartition

logger = get_logger("kohort.admin")


class AdminBase(DriverOwner):
    """The life and the options of an admin client."""

    def __repr__(self) -> str:
        driver = getattr(self, "_driver", None)
        state = "without options" if driver is None else str(driver.life)
        return f"<{type(self).__name__} {state}>"

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> Driver:
        raise NotImplementedError  # each admin client has it

    def _set_up(self, config: ConsumerConfig) -> None:
        self._driver = driver = self._make_driver(config)
        driver.life.what = "admin client"
        driver.owner = weakref.ref(self)

    @classmethod
    def _from_properties(
        cls, properties: Mapping[str, Any], unsupported: str, **client: Any
    ) -> Self:
        """Return a client with these properties. ``client`` has options without a dotted name."""
        config = config_of_properties(properties, unsupported)
        admin = cls.__new__(cls)
        changed = dataclasses.replace(config.client, **client)
        admin._set_up(dataclasses.replace(config, client=changed))
        return admin

    def _seconds(self, timeout_ms: float | None) -> float:
        seconds = _arguments.timeout_seconds(timeout_ms)
        return self._driver.request_seconds if seconds is None else seconds


def config_of_options(options: dict[str, Any]) -> ConsumerConfig:
    """Return the options of an admin client, which are among those of a consumer.

    Raise UnsupportedOptionError for another option of a consumer.
    """
    for name in options:
        if name in OPTIONS and name not in ADMIN_OPTIONS:
            raise UnsupportedOptionError(
                f"{name} is an option of consumers, and has no meaning for an admin client: leave "
                "it out"
            )
    return ConsumerConfig.from_kwargs(**options)


def config_of_properties(properties: Mapping[str, Any], unsupported: str) -> ConsumerConfig:
    """Return the options with these dotted names. Ignore those of a consumer alone."""
    properties = conceal_properties(properties)
    config = ConsumerConfig.from_properties(properties, unsupported=unsupported)
    unused = {
        dotted
        for each in OPTIONS.values()
        if each.name not in ADMIN_OPTIONS
        for dotted in each.properties
    }
    for name in properties.keys() & unused:
        logger.debug("%s changes nothing for an admin client", name)
    return dataclasses.replace(config, group=GroupConfig(), fetch=FetchConfig())


# -- arguments --------------------------------------------------------------------------------


def names(values: str | Iterable[str], what: str) -> list[str]:
    """Return one name or several as a list, without duplicates."""
    given = [values] if isinstance(values, str) else list(values)
    for each in given:
        if not isinstance(each, str):
            raise TypeError(f"{what} must be a str, not {each!r}")
        _arguments.text(each, what)
    return list(dict.fromkeys(given))


def lowered(values: Iterable[str] | None, what: str) -> frozenset[str] | None:
    """Return a filter in lower case, or None."""
    if values is None:
        return None
    return frozenset(each.lower() for each in names(values, what))


def group_specs(
    specs: str | Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
) -> dict[str, Collection[TopicPartition] | None]:
    """Return the partitions to read by group, or None for all."""
    if not isinstance(specs, Mapping):
        return dict.fromkeys(names(specs, "a group id"))
    names(specs, "a group id")
    return {
        group_id: None if chosen is None else _arguments.topic_partitions(chosen)
        for group_id, chosen in specs.items()
    }


def start_offsets(starts: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int | None]:
    """Return the checked start offsets by partition. None stands for no start."""
    if not isinstance(starts, Mapping):
        raise TypeError(f"expected a mapping of TopicPartition to an offset, not {starts!r}")
    return {
        _arguments.topic_partition(tp): None
        if start is None
        else _arguments.integer(start, f"the start of {tp}", 0)
        for tp, start in starts.items()
    }


def offset_specs(specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the checked timestamps or OffsetSpec values by partition."""
    if not isinstance(specs, Mapping):
        raise TypeError(f"expected a mapping of TopicPartition to OffsetSpec, not {specs!r}")
    from kohort.admin._results import OffsetSpec

    lowest = min(OffsetSpec)
    return {
        _arguments.topic_partition(tp): _arguments.integer(value, f"the spec of {tp}", lowest)
        for tp, value in specs.items()
    }


def members_to_remove(members: Iterable[str | MemberToRemove]) -> list[MemberToRemove]:
    """Return the members to remove, without duplicates. A text stands for the id of a member."""
    if isinstance(members, str | MemberToRemove):
        raise TypeError(f"expected a list of members, not {members!r}")
    found = [MemberToRemove(each) if isinstance(each, str) else each for each in members]
    for each in found:
        if not isinstance(each, MemberToRemove):
            raise TypeError(f"a member must be a str or MemberToRemove, not {each!r}")
        ids = [text for text in each[:2] if text is not None]
        if not names(ids, "the id of a member"):
            raise ValueError(f"{each!r} needs a member_id or a group_instance_id")
    return list(dict.fromkeys(found))


def record_offsets(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the checked offsets before which records are deleted. -1 is the end of a log."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"expected a mapping of TopicPartition to an offset, not {offsets!r}")
    return {
        _arguments.topic_partition(tp): _arguments.integer(offset, f"the offset of {tp}", -1)
        for tp, offset in offsets.items()
    }


def new_topics(topics: Iterable[str] | Mapping[str, NewTopic | int]) -> dict[str, NewTopic]:
    """Return the topics to create. A number stands for the partitions of a topic."""
    named = names(topics, "a topic")
    if not isinstance(topics, Mapping):
        return dict.fromkeys(named, NewTopic())
    return {
        name: value
        if isinstance(value := topics[name], NewTopic)
        else NewTopic(_arguments.integer(value, f"the number of partitions of {name}", 1))
        for name in named
    }


def partition_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the checked numbers of partitions by topic."""
    names(counts, "a topic")
    return {
        name: _arguments.integer(count, f"the number of partitions of {name}", 1)
        for name, count in counts.items()
    }


def config_resources(resources: Iterable[ConfigResource]) -> list[ConfigResource]:
    """Return the checked resources, without duplicates."""
    found = [ConfigResource(*each) for each in resources]
    for each in found:
        if each.type not in ("topic", "broker", "group"):
            raise ValueError(f"{each!r}: the type must be topic, broker or group")
        names(each.name, "the name of a resource")
    return list(dict.fromkeys(found))


def is_committed(isolation_level: str) -> bool:
    """Return True for read_committed."""
    if isolation_level not in ("read_uncommitted", "read_committed"):
        raise InvalidOptionError(
            f"isolation_level={isolation_level!r}: expected 'read_uncommitted' or 'read_committed'"
        )
    return isolation_level == "read_committed"


def check_reset(
    to: object,
    topics: list[str] | None,
    partitions: list[TopicPartition] | None,
    group_id: str,
    new_type: str | None,
) -> None:
    """Raise ValueError for partitions besides a target that names them, and for a wrong type."""
    if new_type not in (None, "share"):
        raise ValueError(f"new_type={new_type!r}: expected 'share' or None")
    names_them = isinstance(to, Mapping | ResetPlan)
    if names_them and (topics is not None or partitions is not None):
        raise ValueError("topics and partitions are those of the plan or mapping: leave them out")
    if isinstance(to, ResetPlan) and to.group_id != group_id:
        raise ValueError(f"the plan is for group {to.group_id!r}, not for {group_id!r}")
