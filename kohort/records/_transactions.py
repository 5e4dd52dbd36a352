"""Control records, and which batches an isolation level lets through (KIP-98)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from kohort.errors import CorruptBatchError

if TYPE_CHECKING:
    from kohort.records._encode import NewRecord
    from kohort.records._split import RecordBatch

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The control records that end a transaction; others belong to the cluster itself."""

    ABORT = 0
    COMMIT = 1


def control_type(key: bytes | None) -> int:
    """The type in the key of a control record: a ControlType, or the number of another kind."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"the key of a control record is {key!r}, of less than 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"the key of a control record has version {version}")
    return int(kind)


def marker_epoch(value: bytes | None) -> int:
    """The coordinator's epoch in the value of a control record that ends a transaction."""
    if value is None or len(value) < _MARKER_VALUE.size:
        raise CorruptBatchError(f"the value of a control record is {value!r}, under 6 bytes")
    return int(_MARKER_VALUE.unpack_from(value)[1])


def end_marker(kind: ControlType, *, coordinator_epoch: int, timestamp: int) -> NewRecord:
    """The one record of the control batch that ends a transaction in a partition."""
    from kohort.records._encode import NewRecord

    return NewRecord(timestamp, _KEY.pack(0, kind), _MARKER_VALUE.pack(0, coordinator_epoch))


class AbortedTransactions:
    """Tells, batch after batch of one partition in order, which ones a consumer may see.

    ``aborted`` are the (producer_id, first_offset) pairs of the fetch response, for
    ``isolation_level="read_committed"``; without them only control batches are held back.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        # Those that start first at the end, where they are taken from.
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._open: set[int] = set()

    def copy(self) -> AbortedTransactions:
        """Another one that has seen the same batches."""
        other = AbortedTransactions()
        other._waiting, other._open = self._waiting.copy(), self._open.copy()
        return other

    def delivers(self, batch: RecordBatch) -> bool:
        """Whether the records of this batch, the next one, are for the user."""
        header = batch.header
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._open.add(self._waiting.pop()[0])
        if header.is_control:
            # One producer's next transaction may start right behind the marker of this one.
            if header.producer_id in self._open and _is_abort(batch):
                self._open.remove(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


def _is_abort(batch: RecordBatch) -> bool:
    records = batch.records()
    try:
        return bool(records) and control_type(records[0].key) == ControlType.ABORT
    except CorruptBatchError as error:
        raise batch.located(error) from None
