"""Rows and offsets in one commit of a table of Delta Lake, by the library deltalake.

A commit of Delta Lake may carry versions of applications (the action ``txn``). Each group and
partition is an application, and its version is the next offset. Two commits that begin at the same
version of the table and carry the same application exclude each other. So a commit is a
compare-and-swap of the offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kohort import TopicPartition
from kohort.processing.stores._session import StoredOffset, TableSession

_HALF = 1 << 64
_SIGN = 1 << 63


@dataclass(frozen=True)
class DeltaOffsets:
    """A table of Delta Lake that has the offsets beside the rows, for ``process(offsets=)``.

    ``table`` is the path or the address of an existing table. The handler is a plain function that
    returns the rows to append, as a ``pyarrow.Table`` or another object with Arrow's interface, or
    None. Rows and offset are one commit, so each record has its effect exactly once.

    Each commit writes a file, so use large batches. Needs the extra ``delta``.
    """

    table: str
    storage_options: Mapping[str, str] | None = None


class DeltaSession(TableSession):
    """The use of a table of Delta Lake by one call of process()."""

    def __init__(self, offsets: DeltaOffsets, group: str) -> None:
        import deltalake.exceptions

        super().__init__(group, f"the table {offsets.table}")
        self._library = deltalake
        self._uri = offsets.table
        self._options = None if offsets.storage_options is None else dict(offsets.storage_options)

    def _load(self) -> Any:
        return self._library.DeltaTable(self._uri, storage_options=self._options)

    def _commit(
        self,
        table: Any,
        tp: TopicPartition,
        before: StoredOffset | None,
        at: StoredOffset,
        rows: Any,
    ) -> None:
        deltalake = self._library
        applications = dict(zip(self._names(tp), (at.offset, *_halves(at.topic_id)), strict=True))
        properties = deltalake.CommitProperties(
            app_transactions=[
                deltalake.Transaction(name, version) for name, version in applications.items()
            ]
        )
        try:
            if rows is None:
                table.create_write_transaction(
                    [], "append", table.schema(), commit_properties=properties
                )
            else:
                deltalake.write_deltalake(table, rows, mode="append", commit_properties=properties)
        except deltalake.exceptions.CommitFailedError as error:
            raise self._conflict(tp, before or at) from error

    def _stored(self, table: Any, tp: TopicPartition) -> StoredOffset | None:
        offset, high, low = (table.transaction_version(name) for name in self._names(tp))
        if offset is None:
            return None
        return StoredOffset(offset, _topic_id(high, low))

    def _names(self, tp: TopicPartition) -> tuple[str, str, str]:
        """Return the applications of the offset, and of both halves of the topic id."""
        name = f"kohort/{self._group}/{tp.topic}/{tp.partition}"
        return name, f"{name}/topic-id-high", f"{name}/topic-id-low"


def _halves(topic_id: str) -> tuple[int, int]:
    """Return both halves of an id as signed integers, which versions of applications are."""
    high, low = divmod(UUID(topic_id).int if topic_id else 0, _HALF)
    return (high ^ _SIGN) - _SIGN, (low ^ _SIGN) - _SIGN


def _topic_id(high: int, low: int) -> str:
    number = (high % _HALF) * _HALF + low % _HALF
    return str(UUID(int=number)) if number else ""
