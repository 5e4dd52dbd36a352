"""RecordSet: the records of one partition in a fetch response, decoded on request.

The engine reads the headers of its batches once. One call then decodes each run of plain batches,
however small they are. RecordBatch decodes one batch at a time. It takes compressed batches,
batches of transactions and bad ones, and all that the fast path refuses. So one place describes
errors.

Brokers return what a log contains. So a fetch of any version may return messages of formats 0 and 1
between batches. They come if the ``message.format.version`` of a topic changed. A RecordSet
separates runs of messages (``_legacy``) from runs of batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kohort.errors import CorruptBatchError
from kohort.records._decoder_choice import read_plain, scan, use_lz4
from kohort.records._header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    read_header,
)
from kohort.records._legacy import read_messages, scan_messages
from kohort.records._record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, Record
from kohort.records._record_batch import RecordBatch, split_batches
from kohort.records._transactions import NONE_ABORTED, AbortedTransactions
from kohort.records.codecs._compression import DEFAULT_BUDGET, Compression
from kohort.records.codecs._scratch import Scratch

if TYPE_CHECKING:
    from kohort.records.tables._table import TablePlan

_DELTA_MAX = 0x7FFF_FFFF
_WITHOUT_FIRST_TIME = CONTROL_BIT | DELETE_HORIZON_BIT
"""Batches whose header does not have the timestamp of a record."""
_AT_ONCE = 1000
"""Old messages that are converted to batches at a time."""


class BatchScan:
    """The batches in ``data`` by their headers, and the bytes after the last complete batch.

    Messages of the formats 0 and 1 may come between batches, because the format of a topic could
    change in both directions. A run has batches of format 2, or such messages.
    """

    __slots__ = (
        "_run_ends",
        "_runs_are_old",
        "batches",
        "end_error",
        "last_offset",
        "leader_epoch",
        "size",
        "tail_needs",
        "tail_size",
    )

    def __init__(self, data: memoryview) -> None:
        self.batches: int = 0
        self.last_offset: int = -2
        """Highest offset of the batches, or -2 without one."""
        self.leader_epoch: int = -1
        """Leader epoch of the last batch, or -1 without one."""
        self._run_ends: list[int] = []
        self._runs_are_old: list[bool] = []
        self.size: int = self._scan(data)
        """Bytes of the complete batches."""
        self.tail_size: int = 0
        """Bytes of an incomplete batch at the end, which is no error."""
        self.tail_needs: int | None = None
        """Size of that batch, or None if its length field is incomplete."""
        self.end_error: CorruptBatchError | None = None
        """The error of the bytes after the complete batches, or None."""
        if self.size < len(data):
            self._check_tail(data[self.size :])

    def run_at(self, pos: int) -> tuple[int, bool]:
        """Return the end of the run at a position, and True for old messages."""
        run = bisect_right(self._run_ends, pos)
        return self._run_ends[run], self._runs_are_old[run]

    def _scan(self, data: memoryview) -> int:
        """Read all headers, and return the end of the complete batches."""
        end = 0
        while True:
            found = scan(data[end:] if end else data)
            if found.batches:
                end += found.end
                self._run_ends.append(end)
                self._runs_are_old.append(False)
                self.batches += found.batches
                self.last_offset = max(self.last_offset, found.next_offset - 1)
                self.leader_epoch = found.leader_epoch
                if end == len(data):
                    return end
            old = scan_messages(data, end)
            if not old.found:
                return end
            end = old.end
            self._run_ends.append(end)
            self._runs_are_old.append(True)
            self.batches += old.found
            self.last_offset = max(self.last_offset, old.last_offset)
            self.leader_epoch = -1

    def _check_tail(self, tail: memoryview) -> None:
        """Check the bytes after the last complete batch."""
        split = split_batches(tail)
        try:
            batch = next(split, None)
            assert batch is None, "the scan ends before a batch that is whole"
        except CorruptBatchError as error:
            self.end_error = error
        self.tail_size, self.tail_needs = split.tail_size, split.tail_needs


class RecordSet:
    """The batches in ``data``, with the records from ``offset`` on.

    The decoder reads many plain batches at a time. It reads compressed, transactional and invalid
    batches one by one. Control batches and the transactions in ``aborted`` are skipped, which has
    pairs of producer id and first offset.
    """

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        offset: int = 0,
        *,
        topic: str = "",
        partition: int = -1,
        check_crcs: bool = True,
        budget: int = DEFAULT_BUDGET,
        aborted: Iterable[tuple[int, int]] = (),
        scratch: Scratch | None = None,
    ) -> None:
        self._data = memoryview(data)
        self.has_bytes: bool = len(self._data) > 0
        """True until :meth:`release`."""
        self._topic = topic
        self._partition = partition
        self._check_crcs = check_crcs
        self._budget = budget
        self._scratch = scratch or Scratch()
        self._aborted = AbortedTransactions(aborted) if aborted else NONE_ABORTED
        self._pos = 0
        self.scan: Final = BatchScan(self._data)
        self._end: int = self.scan.size  # of the complete batches, or -1 after release()
        self.next_offset: Final[int] = max(offset, self.scan.last_offset + 1)
        """Offset of the next fetch."""
        self.records: list[Record] = []
        """Records of the latest read()."""
        self.used: int = 0
        """Number of these records that the caller has used."""
        self.passed: int = offset
        """Offset after these records."""
        self.read_epoch: int = -1
        """Leader epoch of the last batch that add_rows_to() read."""
        self.done: bool = self._end <= 0 and self.scan.end_error is None
        """True if all is read, without an error after it."""

    def read(self, enough: int) -> None:
        """Read at least ``enough`` records into ``records``, or fewer before the end or an error.

        Raises CorruptBatchError with position and bytes if the next batch cannot be read.
        """
        records: list[Record] = []
        pos, passed, aborted = self._pos, self.passed, self._aborted
        if aborted is not NONE_ABORTED:
            aborted = aborted.copy()
        while pos < self._end and len(records) < enough:
            end, old = self.scan.run_at(pos)
            if old:
                try:
                    pos, passed = self._read_old(pos, end, records, enough, passed)
                except CorruptBatchError:
                    if not records:
                        raise
                    break
                continue
            before = pos
            pos, passed = read_plain(
                self._data,
                pos,
                end,
                records,
                enough,
                passed,
                self._check_crcs,
                self._topic,
                self._partition,
                self._scratch.kept_view()[: self._budget],
            )
            if pos < end and len(records) < enough:
                batch = RecordBatch.at(self._data, pos)
                try:
                    records += self._read(batch, passed, aborted)
                except CorruptBatchError:
                    if not records and before == pos:
                        raise
                    break  # the next read() raises it
                pos += batch.header.size
                passed = max(passed, batch.header.next_offset)
        error = self.scan.end_error if 0 <= self._end <= pos and not records else None
        # No call from here on, because Ctrl-C interrupts calls.
        self._pos, self.passed, self._aborted = pos, passed, aborted
        self.done = pos >= self._end and (self._end < 0 or self.scan.end_error is None)
        self.records, self.used = records, 0
        if error is not None:
            raise error

    def next_timestamp(self) -> int | None:
        """Return the timestamp of the next record, or None if it is unknown or there is none.

        The header of the next batch has it, unless the batch begins before the next record. Such
        a batch is decoded once more. Nothing changes here.
        """
        if self.used < len(self.records):
            return self.records[self.used].timestamp
        if self._aborted is not NONE_ABORTED or not 0 <= self._pos < self._end:
            return None
        if not self.scan.run_at(self._pos)[1]:
            header = read_header(self._data, self._pos)
            if header.base_offset >= self.passed and not header.attributes & _WITHOUT_FIRST_TIME:
                log_append = header.timestamp_type == LOG_APPEND_TIME
                return header.max_timestamp if log_append else header.base_timestamp
        rest = RecordSet(self._data[self._pos : self._end], self.passed, check_crcs=False)
        try:
            rest.read(1)
        except CorruptBatchError:
            return None  # the caller gets the error when it takes the records
        return rest.records[0].timestamp if rest.records else None

    def _read(self, batch: RecordBatch, passed: int, aborted: AbortedTransactions) -> list[Record]:
        """Return the records of a batch that is not plain."""
        if not self._is_wanted(batch, passed, aborted):
            return []
        if batch.header.attributes & COMPRESSION_MASK == Compression.LZ4:
            from kohort.records.codecs._lz4 import decompressor_address  # with the first such batch

            use_lz4(decompressor_address())
        records = batch.records(
            self._budget, topic=self._topic, partition=self._partition, scratch=self._scratch
        )
        return records[bisect_left(records, passed, key=_offset) :]

    def _is_wanted(self, batch: RecordBatch, passed: int, aborted: AbortedTransactions) -> bool:
        if batch.header.last_offset < passed:
            return False
        if self._check_crcs:
            batch.check_crc()
        return aborted.delivers(batch)

    def add_rows_to(self, plan: TablePlan) -> int:
        """Add the next rows to a table plan as far as they fit, and return their number.

        The caller must have used all ``records``. Raises CorruptBatchError as read() does.
        """
        pos, passed, aborted = self._pos, self.passed, self._aborted.copy()
        before = plan.rows
        where = self._topic.encode(), self._partition
        scratch = self._scratch
        epoch = self.read_epoch
        error: CorruptBatchError | None = None
        try:
            while pos < self._end and plan.has_room:
                end, old = self.scan.run_at(pos)
                if old:
                    pos, passed, whole = self._add_old_rows_to(pos, end, passed, plan)
                    if not whole:
                        break
                    continue
                pos, passed = plan.add_plain(
                    self._data, pos, end, passed, self._check_crcs, *where, scratch, self._budget
                )
                if pos >= end or not plan.has_room:
                    continue
                batch = RecordBatch.at(self._data, pos)
                if self._is_wanted(batch, passed, aborted):
                    cut = plan.add_batch(batch, passed, self._budget, scratch, *where)
                    if cut is not None:
                        passed, epoch = cut, batch.header.partition_leader_epoch
                        break
                pos += batch.header.size
                passed = max(passed, batch.header.next_offset)
        except CorruptBatchError as caught:
            error = caught
        rows = plan.rows - before
        if pos > self._pos:
            epoch = scan(self._data[:pos]).leader_epoch
        self._pos, self.passed, self._aborted, self.read_epoch = pos, passed, aborted, epoch
        self.done = pos >= self._end and (self._end < 0 or self.scan.end_error is None)
        if 0 <= self._end <= pos:
            error = self.scan.end_error
        if error is not None and not rows:
            raise error
        return rows

    def _read_old(
        self, pos: int, end: int, records: list[Record], enough: int, passed: int
    ) -> tuple[int, int]:
        return read_messages(
            self._data,
            pos,
            end,
            records,
            enough,
            passed,
            self._check_crcs,
            self._topic,
            self._partition,
            self._scratch,
            self._budget,
        )

    def _add_old_rows_to(
        self, pos: int, end: int, passed: int, plan: TablePlan
    ) -> tuple[int, int, bool]:
        """Add rows of old messages as batches. The last result is False if not all fit."""
        records: list[Record] = []
        stop, next_offset = self._read_old(pos, end, records, _AT_ONCE, passed)
        where = self._topic.encode(), self._partition
        for batch in _batches_of(records):
            cut = plan.add_batch(batch, passed, self._budget, None, *where)
            if cut is not None:
                return pos, cut, False
        return stop, next_offset, True

    def release(self) -> None:
        """Release the bytes. Records that are not read yet are lost."""
        self._data = memoryview(b"")
        # No call from here on, because Ctrl-C interrupts calls.
        self._end, self.done, self.has_bytes = -1, True, False


def _batches_of(records: list[Record]) -> Iterator[RecordBatch]:
    """Yield the records in batches of format 2. With LogAppendTime a batch has one time."""
    first = 0
    for end in range(1, len(records) + 1):
        if end == len(records) or not _fits(records[first], records[end - 1], records[end]):
            yield _batch_of(records[first:end])
            first = end


def _fits(first: Record, before: Record, record: Record) -> bool:
    """Return True if a record fits in the batch of the two before it."""
    return (
        before.offset < record.offset <= first.offset + _DELTA_MAX
        and record.timestamp_type == first.timestamp_type
        and (record.timestamp_type != LOG_APPEND_TIME or record.timestamp == first.timestamp)
    )


def _batch_of(records: list[Record]) -> RecordBatch:
    from kohort.records._encode import NewRecord, encode_batch

    first = records[0]
    log_append = first.timestamp_type == LOG_APPEND_TIME
    batch = RecordBatch.of(
        encode_batch(
            [NewRecord(record.timestamp, record.key, record.value) for record in records],
            base_offset=first.offset,
            offset_deltas=[record.offset - first.offset for record in records],
            timestamp_type=LOG_APPEND_TIME if log_append else CREATE_TIME,
        )
    )
    if first.timestamp_type == NO_TIMESTAMP_TYPE:
        batch.header.magic = 0  # format 2 has no other mark for it
    return batch


def _offset(record: Record) -> int:
    return record.offset
