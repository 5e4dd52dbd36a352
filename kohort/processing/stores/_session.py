"""What process() needs of a store of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from kohort import TopicPartition
from kohort.processing.stores._steps import Steps


class StoredOffset(NamedTuple):
    """The offset of a partition in a store, and the id of its topic, or "" without one."""

    offset: int
    topic_id: str


class StoreSession(Protocol):
    """The use of a store by one call of process(), for the offsets of one group.

    All methods are steps. Several threads or tasks use a session, each for another partition.
    """

    @property
    def has_cursor(self) -> bool:
        """True if handlers get a cursor as their second argument, False if they return rows."""

    def read(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, StoredOffset]]:
        """Return the stored offsets of those partitions that have one."""

    def begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[None]:
        """Store the first offset of a partition, unless it has one."""

    def write(
        self, tp: TopicPartition, at: StoredOffset, end: int, work: Callable[[Any], Any] | None
    ) -> Steps[None]:
        """Call ``work`` and replace the offset by ``end`` in one transaction.

        Raises OffsetConflictError, and leaves nothing of the work, unless ``at`` is stored.
        """

    def close(self) -> Steps[None]:
        """Close what is open. Transactions that still run close theirs at their end."""
