"""What one fetch brought of one partition: records not decoded yet, or an error in their place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kohort.errors import CorruptBatchError, DataError, KafkaError, RecordDeserializationError
from kohort.fetcher._deserialize import DeserializeRecord
from kohort.fetcher._lease import Lease
from kohort.records import DEFAULT_BUDGET, AbortedTransactions, ConsumerRecord, Record, RecordBatch
from kohort.types import TopicPartition

NO_RECORDS: Sequence[Record] = ()


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How batches become records; the same for all fetches of a consumer."""

    check_crcs: bool = True
    budget: int = DEFAULT_BUDGET
    deserialize: DeserializeRecord | None = None


class CompletedFetch:
    """The batches of one partition from one answer, decoded one by one as they are taken.

    Made by the core, which knows from the headers alone where the next fetch has to start; taken
    by the caller. Records before the offset asked for, control batches and aborted transactions
    are passed over, and :attr:`position` passes them too. ``lease`` is released with the last
    batch decoded: records are copies.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        epoch: int,
        offset: int,
        batches: Iterable[RecordBatch] = (),
        *,
        options: DecodeOptions,
        aborted: Iterable[tuple[int, int]] = (),
        end_error: CorruptBatchError | None = None,
        lease: Lease | None = None,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.high_watermark: Final = high_watermark
        self.last_stable_offset: Final = last_stable_offset
        self.log_start_offset: Final = log_start_offset
        self._batches: Sequence[RecordBatch] = tuple(batches)
        self._next_batch = 0
        self.size: Final = sum(batch.header.size for batch in self._batches)
        last = self._batches[-1].header if self._batches else None
        self.next_offset: Final = offset if last is None else max(offset, last.next_offset)
        """Where the next fetch starts."""
        self.last_leader_epoch: Final = -1 if last is None else last.partition_leader_epoch
        self.position = offset
        """The offset behind what was taken."""
        self.error: DataError | None = None
        """What the last take() stopped at; nothing gets past it."""
        self.raised = 0
        self.busy = False
        self._options = options
        self._aborted = AbortedTransactions(aborted)
        self._end_error = end_error
        self._lease = lease
        self._ready: list[ConsumerRecord[Any, Any]] = []
        self._records: Sequence[Record] = NO_RECORDS
        self._at = 0
        self._passed = offset  # behind the last batch that is done with
        self._behind = offset  # behind the batch that is open
        self._failed_at: int | None = None  # the offset of the latest error

    @property
    def blocked(self) -> bool:
        return self.error is not None

    @property
    def exhausted(self) -> bool:
        """Nothing is left to take, and nothing to raise."""
        return not (
            self._ready
            or self._at < len(self._records)
            or self._next_batch < len(self._batches)
            or self._end_error
        )

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """Up to ``limit`` records; stops early, with ``error`` set, where one cannot be read.

        A deserializer is tried again by the next take(); a corrupt batch stays one.
        """
        taken, ready = self._ready[:limit], self._ready[limit:]
        try:
            if not ready:
                self._take(limit, taken)
            if ready or self._at < len(self._records):
                position = taken[-1].offset + 1 if taken else max(self.position, self._passed)
            else:
                position = self._passed
        except BaseException:  # Ctrl-C in a deserializer, for one
            self._ready = taken + ready
            raise
        self._ready, self.position = ready, position
        return taken

    def put_back(self, records: list[ConsumerRecord[Any, Any]]) -> None:
        """Undo the latest take()."""
        if records:
            self._ready = records + self._ready
            self.position = records[0].offset

    def release(self) -> None:
        """Let go of the bytes: what was not decoded so far never will be."""
        self._batches, self._next_batch = (), 0
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _take(self, limit: int, taken: list[ConsumerRecord[Any, Any]]) -> None:
        if isinstance(self.error, CorruptBatchError):
            return
        deserialize = self._options.deserialize
        try:
            while len(taken) < limit:
                if self._at < len(self._records):
                    stop = min(len(self._records), self._at + limit - len(taken))
                    if deserialize is None:
                        taken += self._records[self._at : stop]
                        self._at = stop
                    else:
                        for record in self._records[self._at : stop]:
                            taken += [deserialize(record)]  # append() would let Ctrl-C in here
                            self._at += 1
                elif not self._open_next():
                    break
                self._close_finished()
        except (CorruptBatchError, RecordDeserializationError) as error:
            if self._failed_at != error.offset:
                self._failed_at, self.raised = error.offset, 0
            self.error = error
        else:
            self.error = None

    def _close_finished(self) -> None:
        if self._at == len(self._records):
            self._records, self._at = NO_RECORDS, 0
            self._passed = self._behind

    def _open_next(self) -> bool:
        """Decode the next batch with records for the user; False at the end."""
        while self._next_batch < len(self._batches):
            batch = self._batches[self._next_batch]
            header = batch.header
            try:
                records = self._decode(batch)
            except CorruptBatchError as error:
                raise self._located(error) from error.__cause__
            at = bisect_left(records, self._passed, key=_offset)
            found = at < len(records)
            behind = max(self._passed, header.next_offset)
            # Nothing is called from here on until all is changed: Ctrl-C comes in calls.
            self._next_batch += 1
            self._behind = behind
            if found:
                self._records, self._at = records, at
            else:
                self._passed = behind
            if self._next_batch == len(self._batches) and self._end_error is None:
                self.release()
            if found:
                return True
        if self._end_error is not None:
            raise self._located(self._end_error)
        return False

    def _decode(self, batch: RecordBatch) -> Sequence[Record]:
        if batch.header.last_offset < self._passed:
            return NO_RECORDS
        if self._options.check_crcs:
            batch.check_crc()
        if not self._aborted.delivers(batch):
            return NO_RECORDS
        topic, partition = self.topic_partition
        return batch.records(self._options.budget, topic=topic, partition=partition)

    def _located(self, error: CorruptBatchError) -> CorruptBatchError:
        """The error with the partition, and what to do about it."""
        tp = self.topic_partition
        offset = self._passed if error.offset is None else max(error.offset, self._passed)
        behind = error.next_offset
        if behind is not None:
            way = f"seek({tp}, {behind}) passes over it"
        else:
            way = "where it ends cannot be told from its bytes: seek() to a later offset"
        return type(error)(
            f"{tp.topic}-{tp.partition}: {error}. Nothing is skipped and the other partitions go "
            f"on; {way}, seek({tp}, {offset}) reads it again",
            topic_partition=tp,
            offset=offset,
            next_offset=behind,
            raw=error.raw,
        )


class FailedFetch:
    """What stands in the queue of a partition where a fetch or look-up failed.

    ``passing``: it is tried again by itself, so the error is raised once and then forgotten;
    otherwise it stands until the partition is sought elsewhere.
    """

    size: Final = 0
    exhausted: Final = False

    def __init__(
        self, topic_partition: TopicPartition, epoch: int, error: KafkaError, *, passing: bool
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.epoch: Final = epoch
        self.error: Final = error
        self.passing: Final = passing
        self.raised = 0
        self.busy = False

    @property
    def blocked(self) -> bool:
        return not self.passing

    def release(self) -> None:
        """It holds nothing."""


def _offset(record: Record) -> int:
    return record.offset
