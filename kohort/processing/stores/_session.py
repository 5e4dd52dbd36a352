"""What process() needs of a store of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from kohort import TopicPartition
from kohort.errors import OffsetConflictError
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


class TableSession:
    """The use of a table whose commits carry rows and offsets. It is a StoreSession.

    A commit fails if another one came after the table was loaded. So it is a compare-and-swap of
    the offset.
    """

    has_cursor = False

    def __init__(self, group: str, table_name: str) -> None:
        self._group = group
        self._table_name = table_name

    def read(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, StoredOffset]]:
        """Return the stored offsets of those partitions that have one."""
        table = yield self._load()
        found = {tp: self._stored(table, tp) for tp in tps}
        return {tp: at for tp, at in found.items() if at is not None}

    def begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[None]:
        """Store the first offset of a partition, unless it has one."""
        table = yield self._load()
        if self._stored(table, tp) is None:
            self._commit(table, tp, None, at, None)

    def write(
        self, tp: TopicPartition, at: StoredOffset, end: int, work: Callable[[Any], Any] | None
    ) -> Steps[None]:
        """Append the rows that ``work`` returns, and replace the offset, in one commit."""
        table = yield self._load()
        if self._stored(table, tp) != at:
            raise self._conflict(tp, at)
        rows = None
        if work is not None:
            rows = yield work(None)
        self._commit(table, tp, at, StoredOffset(end, at.topic_id), rows)

    def close(self) -> Steps[None]:
        """Do nothing: a table is not open between two commits."""
        yield None

    def _load(self) -> Any:
        """Return the table as it is now."""
        raise NotImplementedError  # each table format has it

    def _stored(self, table: Any, tp: TopicPartition) -> StoredOffset | None:
        """Return the offset of a partition in a loaded table."""
        raise NotImplementedError  # each table format has it

    def _commit(
        self,
        table: Any,
        tp: TopicPartition,
        before: StoredOffset | None,
        at: StoredOffset,
        rows: Any,
    ) -> None:
        """Append rows, if any, and replace the offset ``before``. Raise OffsetConflictError."""
        raise NotImplementedError  # each table format has it

    def _conflict(self, tp: TopicPartition, at: StoredOffset) -> OffsetConflictError:
        return OffsetConflictError(
            f"{tp.topic}-{tp.partition}: {self._table_name} does not have the offset {at.offset} "
            f"for group {self._group!r}, or another commit came first. Nothing was stored",
            topic_partition=tp,
            expected=at.offset,
        )
