"""Control records, and the visibility of batches by isolation level (KIP-98)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from kohort.errors import CorruptBatchError

if TYPE_CHECKING:
    from kohort.records._encode import NewRecord
    from kohort.records._record_batch import RecordBatch

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """Control records that end a transaction. Other types are internal to the cluster."""

    ABORT = 0
    COMMIT = 1


def control_type(key: bytes | None) -> int:
    """Return the type in the key of a control record, which may be no ControlType."""
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError(f"the key of a control record is {key!r}, of less than 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"the key of a control record has version {version}")
    return int(kind)


def marker_epoch(value: bytes | None) -> int:
    """Return the coordinator's epoch in a control record that ends a transaction."""
    if value is None or len(value) < _MARKER_VALUE.size:
        raise CorruptBatchError(f"the value of a control record is {value!r}, under 6 bytes")
    return int(_MARKER_VALUE.unpack_from(value)[1])


def end_marker(kind: ControlType, *, coordinator_epoch: int, timestamp: int) -> NewRecord:
    """Return the record of the control batch that ends a transaction in a partition."""
    from kohort.records._encode import NewRecord

    return NewRecord(timestamp, _KEY.pack(0, kind), _MARKER_VALUE.pack(0, coordinator_epoch))


class AbortedTransactions:
    """Filter of the batches of one partition, which must come in order.

    ``aborted`` has the (producer_id, first_offset) pairs of the fetch response, for
    ``isolation_level="read_committed"``. Without them the filter removes only control batches.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        # Transactions are taken from the end, so the first one is last.
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._open: set[int] = set()

    def copy(self) -> AbortedTransactions:
        """Return a copy in the same state."""
        other = AbortedTransactions()
        other._waiting, other._open = self._waiting.copy(), self._open.copy()
        return other

    def delivers(self, batch: RecordBatch) -> bool:
        """Take the next batch. Return True if its records are for the user."""
        header = batch.header
        while self._waiting and self._waiting[-1][1] <= header.last_offset:
            self._open.add(self._waiting.pop()[0])
        if header.is_control:
            # The next transaction of a producer may start right after this marker.
            if header.producer_id in self._open and _is_abort(batch):
                self._open.remove(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


NONE_ABORTED = AbortedTransactions()
"""The filter without transactions, whose state never changes."""


def _is_abort(batch: RecordBatch) -> bool:
    records = batch.records()
    try:
        return bool(records) and control_type(records[0].key) == ControlType.ABORT
    except CorruptBatchError as error:
        raise batch.located(error) from None
