"""Polls and commits, as ``kohort.otel`` observes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from kohort.records import ConsumerRecord
from kohort.types import NamedTuple, TopicPartition

_NO_RECORDS: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]] = {}


class Observed(NamedTuple):
    """The partitions of a poll that returned records, or of a commit."""

    partitions: Collection[TopicPartition]
    size: int | None = None
    """The number of records. None for a commit."""
    records: Mapping[TopicPartition, Sequence[ConsumerRecord[Any, Any]]] = _NO_RECORDS
    """The records, unless they are columns."""


EndOfCall: TypeAlias = Callable[[Observed | None, BaseException | None], object]
"""Called at the end of a call, with what it found, or with the error that it raises."""
Observer: TypeAlias = Callable[[], EndOfCall]
"""Called at the begin of a call."""
