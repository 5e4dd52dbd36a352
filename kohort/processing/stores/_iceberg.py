"""Rows and offsets in one commit of a table of Apache Iceberg, by the library pyiceberg.

The offset of a group and a partition is a property of the table. A commit that appends rows
requires that the newest snapshot is the one of the loaded table. So it is a compare-and-swap of
all properties, and a commit without rows appends none to keep this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kohort import TopicPartition
from kohort.errors import ConfigurationError
from kohort.processing.stores._session import StoredOffset, TableSession


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


class IcebergSession(TableSession):
    """The use of a table of Iceberg by one call of process()."""

    def __init__(self, offsets: IcebergOffsets, group: str) -> None:
        from pyiceberg.exceptions import CommitFailedException

        super().__init__(group, "the table")
        self._conflicts = CommitFailedException
        self._offsets = offsets
        self._lock = threading.Lock()
        """Held by a commit, so that the partitions of one process do not exclude each other."""

    def _load(self) -> Any:
        return self._offsets.load()

    def _commit(
        self,
        table: Any,
        tp: TopicPartition,
        before: StoredOffset | None,
        at: StoredOffset,
        rows: Any,
    ) -> None:
        with self._lock:
            table = self._load()  # another partition may have committed since
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
