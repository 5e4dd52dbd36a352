"""Values that kohort passes to its users and takes from them. They are immutable and hashable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

__all__ = [
    "ConsumerGroupMetadata",
    "MetricSample",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "SubscriptionPattern",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """Partition of a topic, as a named tuple like in kafka-python and aiokafka."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """Committed offset of a partition.

    ``offset`` is the next offset to read. ``metadata`` is free text of at most 4,096 bytes.
    ``leader_epoch`` is that of the last record read, or -1 if unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """First offset at or after a timestamp, which is in milliseconds since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class MetricSample(NamedTuple):
    """Figure of a consumer with its labels, from ``metric_samples()``."""

    name: str
    """Name of the figure, as in ``metrics()``."""
    labels: dict[str, str]
    value: float


class SubscriptionPattern(NamedTuple):
    """Regular expression of topic names that the brokers evaluate, in the syntax of RE2J.

    It matches whole names. A group needs the consumer protocol for it (KIP-848), while a compiled
    pattern of Python is evaluated by the consumer itself and needs nothing.
    """

    pattern: str


class ConsumerGroupMetadata(NamedTuple):
    """Membership of a consumer in its group (KIP-447). The defaults stand for no membership."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = "<unjoined>"


for _value in (
    TopicPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SubscriptionPattern,
    ConsumerGroupMetadata,
    MetricSample,
):
    _value.__module__ = "kohort"  # pickles and tracebacks have the public name


def escaped(text: str) -> str:
    """Return the text with control characters escaped, so that it cannot forge a log line."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


class LazyModule:
    """Placeholder of a module in annotations. :func:`typing.get_type_hints` imports the module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_names(
    package: str, module_of: Callable[[str], str | None]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports names late (PEP 562).

    ``module_of`` returns the module of such a name, and None for any other name.
    """
    namespace = vars(sys.modules[package])

    def find(name: str) -> Any:
        module = module_of(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = namespace[name] = getattr(import_module(module), name)
        return found

    def names() -> list[str]:
        return sorted({*namespace, *namespace["__all__"]})

    return find, names
