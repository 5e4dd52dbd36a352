"""All that one fetch brought of one partition, read as far as is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

from kohort.errors import CorruptBatchError
from kohort.records._compression import DEFAULT_BUDGET
from kohort.records._decoder import read_plain, scan
from kohort.records._record import Record
from kohort.records._scratch import Scratch
from kohort.records._split import RecordBatch, split_batches
from kohort.records._table import TablePlan
from kohort.records._transactions import AbortedTransactions

Mark: TypeAlias = tuple[int, int, AbortedTransactions, int]


class RecordSet:
    """The batches in ``data``, of which the records from ``offset`` on are wanted.

    What is plain is read many batches at a time, by the compiled decoder where there is one; what
    is compressed, of a transaction, or wrong, batch by batch. Control batches and transactions in
    ``aborted`` ((producer_id, first_offset) pairs) are passed over.
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
        self._topic = topic
        self._partition = partition
        self._check_crcs = check_crcs
        self._budget = budget
        self._scratch = scratch
        self._aborted = AbortedTransactions(aborted)
        found = scan(self._data)
        self._pos = 0
        self._end: int = found.end
        self.batches: int = found.batches
        self.size: int = found.end
        """Bytes of the batches that are whole."""
        self.last_offset: int = found.next_offset - 1
        """Of the last batch; -2 without one."""
        self.next_offset = max(offset, found.next_offset)
        """Where the next fetch starts."""
        self.leader_epoch: int = found.leader_epoch
        """Of the last batch; -1 without one."""
        self.read_epoch = -1
        """The leader epoch of what measure() moved behind last."""
        self.records: list[Record] = []
        """What was read last."""
        self.passed = offset
        """The offset behind these."""
        self.tail_size = 0
        """Bytes of a batch at the end that was cut off; nothing is wrong with that."""
        self.tail_needs: int | None = None
        """Bytes that it claims to have, None if not even that is there."""
        self._end_error: CorruptBatchError | None = None
        self._look_behind(found.end)

    def _look_behind(self, end: int) -> None:
        """What follows the last batch that the scan took for one."""
        if end == len(self._data):
            return
        split = split_batches(self._data[end:])
        try:
            batch = next(split, None)
            assert batch is None, "the scan ends before a batch that is whole"
        except CorruptBatchError as error:
            self._end_error = error
        self.tail_size, self.tail_needs = split.tail_size, split.tail_needs

    @property
    def done(self) -> bool:
        """All is read, and nothing is wrong behind it."""
        return self._pos >= self._end and self._end_error is None

    def read(self, enough: int) -> None:
        """Have the next in ``records``: ``enough`` at least, unless these are all or worse comes.

        CorruptBatchError, with the place and the bytes, where the next batch cannot be read.
        """
        records: list[Record] = []
        pos, passed, aborted = self._pos, self.passed, self._aborted.copy()
        while pos < self._end and len(records) < enough:
            before = pos
            pos, passed = read_plain(
                self._data,
                pos,
                self._end,
                records,
                enough,
                passed,
                self._check_crcs,
                self._topic,
                self._partition,
            )
            if pos < self._end and len(records) < enough:
                batch = RecordBatch.at(self._data, pos)
                try:
                    records += self._read(batch, passed, aborted)
                except CorruptBatchError:
                    if not records and before == pos:
                        raise
                    break  # and once more, without anything before it
                pos += batch.header.size
                passed = max(passed, batch.header.next_offset)
        first = bisect_left(records, self.passed, key=_offset)
        wanted = records[first:] if first else records
        error = self._end_error if pos >= self._end and not wanted else None
        # Nothing is called from here on: Ctrl-C comes in calls.
        self._pos, self.passed, self.records, self._aborted = pos, passed, wanted, aborted
        if error is not None:
            raise error

    def _read(self, batch: RecordBatch, passed: int, aborted: AbortedTransactions) -> list[Record]:
        """The records of a batch that is not plain."""
        if not self._is_wanted(batch, passed, aborted):
            return []
        return batch.records(
            self._budget, topic=self._topic, partition=self._partition, scratch=self._scratch
        )

    def _is_wanted(self, batch: RecordBatch, passed: int, aborted: AbortedTransactions) -> bool:
        if batch.header.last_offset < passed:
            return False
        if self._check_crcs:
            batch.check_crc()
        return aborted.delivers(batch)

    def measure(self, plan: TablePlan) -> int:
        """Plan the next rows, as many as there is room for; returns how many, moves behind them.

        ``records`` has to be used up. CorruptBatchError as from read().
        """
        pos, passed, aborted = self._pos, self.passed, self._aborted.copy()
        before = plan.rows
        where = self._topic.encode(), self._partition
        epoch = self.read_epoch
        while pos < self._end and plan.has_room:
            pos, passed = plan.add_plain(
                self._data, pos, self._end, passed, self._check_crcs, *where
            )
            if pos >= self._end or not plan.has_room:
                break
            batch = RecordBatch.at(self._data, pos)
            try:
                if self._is_wanted(batch, passed, aborted):
                    cut = plan.add_batch(batch, passed, self._budget, self._scratch, *where)
                    if cut is not None:
                        passed, epoch = cut, batch.header.partition_leader_epoch
                        break
            except CorruptBatchError:
                if plan.rows == before:
                    self._pos, self.passed, self._aborted = pos, passed, aborted
                    raise
                break
            pos += batch.header.size
            passed = max(passed, batch.header.next_offset)
        rows = plan.rows - before
        if pos > self._pos:
            epoch = scan(self._data[:pos]).leader_epoch
        self._pos, self.passed, self._aborted, self.read_epoch = pos, passed, aborted, epoch
        if not rows and pos >= self._end and self._end_error is not None:
            raise self._end_error
        return rows

    def mark(self) -> Mark:
        """What back_to() needs to undo a measure()."""
        return self._pos, self.passed, self._aborted, self.read_epoch

    def back_to(self, mark: Mark) -> None:
        """Have measure() and read() begin where they did then."""
        self._pos, self.passed, self._aborted, self.read_epoch = mark

    def release(self) -> None:
        """Let go of the bytes: what was not read so far never will be."""
        self._data = memoryview(b"")
        self._pos = self._end = 0
        self._end_error = None


def _offset(record: Record) -> int:
    return record.offset
