"""Rows and offsets in one commit of a table of Apache Iceberg, by the library pyiceberg.

The offset of a group and a partition is a property of the table. A commit that appends rows
requires that the newest snapshot is the one of the loaded table. So it is a compare-and-swap of
all properties, and a commit without rows appends none to keep this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kohort import TopicPartition
from kohort.errors import ConfigurationError, OffsetConflictError
from kohort.processing.stores._session import StoredOffset
from kohort.processing.stores._steps import Steps


@dataclass(frozen=True)
class IcebergOffsets:
    """A table of Apache Iceberg with the offsets beside the rows, for ``process(offsets=)``.

    ``load()`` returns the table as its catalog has it now, such as
    ``lambda: catalog.load_table("lake.orders")``. The handler is a plain function that returns the
    rows to append, as a ``pyarrow.Table``, or None. Rows and offset are one commit, so each record
    has its effect exactly once.

    Each commit writes files, and commits of all partitions exclude each other. So use large
    batches. Needs the extra ``iceberg``.
    """

    load: Callable[[], Any]

    def __post_init__(self) -> None:
        if not callable(self.load):
            raise ConfigurationError(
                f"IcebergOffsets({self.load!r}) is wrong: use a function that returns the table "
                "as its catalog has it now"
            )


class IcebergSession:
    """The use of a table by one call of process(). It is a StoreSession."""

    has_cursor = False

    def __init__(self, offsets: IcebergOffsets, group: str) -> None:
        from pyiceberg.exceptions import CommitFailedException

        self._conflicts = CommitFailedException
        self._load = offsets.load
        self._group = group
        self._lock = threading.Lock()
        """Held by a commit, so that the partitions of one process do not exclude each other."""

    def read(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, StoredOffset]]:
        """Return the stored offsets of those partitions that have one."""
        table = yield self._load()
        found = {tp: self._stored(table, tp) for tp in tps}
        return {tp: at for tp, at in found.items() if at is not None}

    def begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[None]:
        """Store the first offset of a partition, unless it has one."""
        yield from ()
        self._commit(tp, None, at, None)

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
        self._commit(tp, at, StoredOffset(end, at.topic_id), rows)

    def close(self) -> Steps[None]:
        """Do nothing: a table is not open between two commits."""
        yield None

    def _commit(
        self, tp: TopicPartition, before: StoredOffset | None, at: StoredOffset, rows: Any
    ) -> None:
        with self._lock:
            table = self._load()
            if self._stored(table, tp) != before:
                raise self._conflict(tp, before or at)
            if rows is None:
                rows = table.schema().as_arrow().empty_table()
            # pyiceberg would repeat a refused commit on the newest snapshot, without this check.
            # It reads the property from the loaded table, which is used for this commit only.
            table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = table.transaction()
            try:
                transaction.append(rows)
                transaction.set_properties({self._name(tp): f"{at.offset} {at.topic_id}"})
                transaction.commit_transaction()
            except self._conflicts as error:
                raise self._conflict(tp, before or at) from error

    def _stored(self, table: Any, tp: TopicPartition) -> StoredOffset | None:
        text = table.properties.get(self._name(tp))
        if text is None:
            return None
        offset, _, topic_id = text.partition(" ")
        return StoredOffset(int(offset), topic_id)

    def _name(self, tp: TopicPartition) -> str:
        return f"kohort.offset.{self._group}.{tp.topic}.{tp.partition}"

    def _conflict(self, tp: TopicPartition, at: StoredOffset) -> OffsetConflictError:
        return OffsetConflictError(
            f"{tp.topic}-{tp.partition}: the table does not have the offset {at.offset} for group "
            f"{self._group!r}, or another commit came first. Nothing was stored",
            topic_partition=tp,
            expected=at.offset,
        )
