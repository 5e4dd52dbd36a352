"""Value classes of ``aiokafka.structs``: aiokafka's own where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kohort import TopicPartition
from kohort.compat._peer import peer_name

__all__ = ["ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass
class ConsumerRecord(Generic[K, V]):
    """Record with attributes that a program may change, and may add to."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]


class OffsetAndMetadata(NamedTuple):
    """Offset to commit, and the text that is committed with it."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """First offset at or after a timestamp, which is in milliseconds since the epoch."""

    offset: int
    timestamp: int | None


if not TYPE_CHECKING:
    # The producer checks the class of the partitions, and programs import it from either module.
    _PEER = {name: peer_name("aiokafka.structs", name) for name in __all__}
    globals().update({name: found for name, found in _PEER.items() if found is not None})


def __getattr__(name: str) -> Any:
    """Return a name of ``aiokafka.structs`` that is not defined here."""
    if not name.startswith("_"):
        try:
            return getattr(import_module("aiokafka.structs"), name)
        except ImportError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
