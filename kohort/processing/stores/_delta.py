"""Rows and offsets in one commit of a table of Delta Lake, by the library deltalake.

A commit of Delta Lake may carry versions of applications (the action ``txn``). Each group and
partition is an application, and its version is the next offset. Two commits that begin at the same
version of the table and carry the same application exclude each other. So a commit is a
compare-and-swap of the offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kohort import TopicPartition
from kohort.errors import OffsetConflictError
from kohort.processing.stores._session import StoredOffset
from kohort.processing.stores._steps import Steps

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


class DeltaSession:
    """The use of a table by one call of process(). It is a StoreSession."""

    has_cursor = False

    def __init__(self, offsets: DeltaOffsets, group: str) -> None:
        import deltalake.exceptions

        self._library = deltalake
        self._uri = offsets.table
        self._options = None if offsets.storage_options is None else dict(offsets.storage_options)
        self._group = group

    def read(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, StoredOffset]]:
        """Return the stored offsets of those partitions that have one."""
        table = yield self._load()
        found = {tp: self._stored(table, tp) for tp in tps}
        return {tp: at for tp, at in found.items() if at is not None}

    def begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[None]:
        """Store the first offset of a partition, unless it has one."""
        table = yield self._load()
        if self._stored(table, tp) is None:
            self._commit(table, tp, at, None)

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
        self._commit(table, tp, StoredOffset(end, at.topic_id), rows)

    def close(self) -> Steps[None]:
        """Do nothing: a table is not open between two commits."""
        yield None

    def _load(self) -> Any:
        return self._library.DeltaTable(self._uri, storage_options=self._options)

    def _commit(self, table: Any, tp: TopicPartition, at: StoredOffset, rows: Any) -> None:
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
            raise self._conflict(tp, at) from error

    def _stored(self, table: Any, tp: TopicPartition) -> StoredOffset | None:
        offset, high, low = (table.transaction_version(name) for name in self._names(tp))
        if offset is None:
            return None
        return StoredOffset(offset, _topic_id(high, low))

    def _names(self, tp: TopicPartition) -> tuple[str, str, str]:
        """Return the applications of the offset, and of both halves of the topic id."""
        name = f"kohort/{self._group}/{tp.topic}/{tp.partition}"
        return name, f"{name}/topic-id-high", f"{name}/topic-id-low"

    def _conflict(self, tp: TopicPartition, at: StoredOffset) -> OffsetConflictError:
        return OffsetConflictError(
            f"{tp.topic}-{tp.partition}: the table {self._uri} does not have the offset "
            f"{at.offset} for group {self._group!r}, or another commit came first. Nothing was "
            "stored",
            topic_partition=tp,
            expected=at.offset,
        )


def _halves(topic_id: str) -> tuple[int, int]:
    """Return both halves of an id as signed integers, which versions of applications are."""
    high, low = divmod(UUID(topic_id).int if topic_id else 0, _HALF)
    return (high ^ _SIGN) - _SIGN, (low ^ _SIGN) - _SIGN


def _topic_id(high: int, low: int) -> str:
    number = (high % _HALF) * _HALF + low % _HALF
    return str(UUID(int=number)) if number else ""
