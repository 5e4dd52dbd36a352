"""The log of a partition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from kohort.broker.log._compaction import AbortedTransaction, Compaction, LastWritten
from kohort.broker.log._epochs import EpochCache
from kohort.broker.log._producers import ProducerStates
from kohort.broker.log._segment import FIRST_CAPACITY, LARGEST_CAPACITY, Segment
from kohort.errors import CorruptBatchError, ErrorCode
from kohort.protocol import Buffer
from kohort.records import (
    BatchHeader,
    ControlType,
    RecordBatch,
    encode_batch,
    end_marker,
    read_header,
    rewrite_header,
)
from kohort.types import NamedTuple

_NO_LIMIT = 1 << 62

EMPTY = memoryview(b"")


class AppendError(Exception):
    """Refusal of a batch; ``records`` are the indexes of the invalid records."""

    def __init__(self, code: ErrorCode, message: str, records: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.records = records


class AppendResult(NamedTuple):
    """Base offset and time of an appended batch.

    ``timestamp`` is the time of appending if the topic stores that, else -1. For a duplicate it is
    the batch's largest timestamp, as in Kafka.
    """

    base_offset: int
    timestamp: int


class TimestampedOffset(NamedTuple):
    """Result of a lookup by time; ``timestamp`` is -1 for the ends of the log."""

    offset: int
    timestamp: int
    leader_epoch: int


class Marker(NamedTuple):
    """The end of a transaction of a ``version``, for each of its partitions."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int = 0


class PartitionLog:
    """Batches as they were received, except for the base offset, epoch and time that the broker
    sets.

    A partition has one log, independent of its number of replicas. The copy of a lagging replica is
    the beginning of that log. The high watermark is the end of the log.
    """

    def __init__(self) -> None:
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.epochs: EpochCache = EpochCache()
        self.producers: ProducerStates = ProducerStates()
        self._aborted: list[AbortedTransaction] = []
        self.watchers: set[Callable[[], None]] = set()
        """Callbacks for each append and each change of the log's start, end, leader or
        replicas.
        """
        self._segments: list[Segment] = []

    @property
    def high_watermark(self) -> int:
        return self.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The start of the oldest open transaction, or the end of the log."""
        first = self.producers.first_open_offset
        return self.end_offset if first is None else max(first, self.start_offset)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def discard(self) -> None:
        """Free the batches, when the log is no longer read."""
        self._segments = []

    def notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    # Writing

    def append(self, batch: RecordBatch, leader_epoch: int, now_ms: int | None) -> AppendResult:
        """Append a batch of a producer; ``now_ms`` becomes the time of all its records.

        Raises AppendError. A duplicate of an idempotent producer's batch is not appended again.
        """
        header = batch.header
        idempotent = header.producer_id >= 0
        if idempotent:
            if (before := self.producers.find_duplicate(header)) is not None:
                return AppendResult(before.base_offset, before.timestamp)
            error = self.producers.check(header)
            if error is not ErrorCode.NONE:
                raise AppendError(
                    error,
                    f"producer {header.producer_id}, epoch {header.producer_epoch}: "
                    f"sequence {header.base_sequence} is not the next one",
                )
        base_offset = self.end_offset
        self._store(rewrite_header(batch.raw, base_offset, leader_epoch, now_ms))
        if idempotent:
            stamp = header.max_timestamp if now_ms is None else now_ms
            self.producers.update_on_append(header, base_offset, stamp)
        self.notify()
        return AppendResult(base_offset, -1 if now_ms is None else now_ms)

    def append_coordinated(self, batch: RecordBatch, leader_epoch: int) -> None:
        """Append a batch that a coordinator writes for a producer, without a check of sequences."""
        base_offset = self.end_offset
        self._store(rewrite_header(batch.raw, base_offset, leader_epoch))
        self.producers.update_on_append(batch.header, base_offset, batch.header.max_timestamp)
        self.notify()

    def append_marker(self, marker: Marker, leader_epoch: int, now_ms: int) -> None:
        """End a producer's transaction; AppendError for an old epoch."""
        producer = marker.producer_id, marker.producer_epoch
        epoch = marker.coordinator_epoch
        error = self.producers.check_marker(*producer, epoch, marker.version)
        if error is not ErrorCode.NONE:
            raise AppendError(error, f"{marker} has an old epoch")
        kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
        offset = self.end_offset
        self._store(
            encode_batch(
                [end_marker(kind, coordinator_epoch=epoch, timestamp=now_ms)],
                base_offset=offset,
                leader_epoch=leader_epoch,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transactional=True,
                control=True,
            )
        )
        first = self.producers.end_transaction(*producer, epoch, now_ms)
        if first >= 0 and not marker.committed:
            self._aborted.append(AbortedTransaction(marker.producer_id, first, offset))
        self.notify()

    def _store(self, raw: bytes) -> None:
        header = self._put(raw)
        self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.end_offset = header.next_offset

    def _put(self, raw: bytes | memoryview) -> BatchHeader:
        header = read_header(raw)
        size = len(raw)
        segments = self._segments
        if not segments or not segments[-1].has_room(size):
            grown = min(segments[-1].capacity * 4, LARGEST_CAPACITY) if segments else FIRST_CAPACITY
            segments.append(Segment(max(grown, size)))
        segments[-1].append(raw, header)
        return header

    def advance_start(self, offset: int) -> None:
        """Delete the records below the offset, and drop segments without remaining records."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        while self._segments and self._segments[0].last_offsets[-1] < self.start_offset:
            del self._segments[0]
        self.epochs.truncate_start(self.start_offset)
        self.notify()

    def truncate(self, offset: int) -> None:
        """Remove the batches from the offset on, and the state that was derived from them."""
        if offset >= self.end_offset:
            return
        lost = {batch.header.producer_id for batch in self.batches(offset)} - {-1}
        segments = self._segments
        while segments and segments[-1].base_offsets[0] >= offset:
            del segments[-1]
        if segments:
            segments[-1].truncate(offset)
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.epochs.truncate_end(offset)
        del self._aborted[
            bisect_left(self._aborted, offset, key=lambda aborted: aborted.last_offset) :
        ]
        self.producers.replay(lost, self.batches())
        self.notify()

    # Cleaning

    def compact(self, now_ms: int, delete_retention_ms: int, min_lag_ms: int = 0) -> None:
        """Keep only the latest record of each key.

        Some batches do not change:

        - the last one, which corresponds to Kafka's active segment
        - those after the last stable offset
        - all from the first one on that is younger than the lag
        """
        batches = list(self.batches())
        stable = self.last_stable_offset
        count = 0
        for batch in batches[:-1]:
            header = batch.header
            young = min_lag_ms > 0 and header.max_timestamp > now_ms - min_lag_ms
            if header.last_offset >= stable or young:
                break
            count += 1
        if count == 0:
            return
        producers = {
            producer_id: LastWritten(producer.last_offset, producer.epoch)
            for producer_id, producer in self.producers.items()
        }
        compaction = Compaction(now_ms, delete_retention_ms, self._aborted, producers)
        cleaned, kept_transactions = compaction.run(batches[:count])
        end = batches[count].header.base_offset
        self._aborted = kept_transactions + [
            aborted for aborted in self._aborted if aborted.last_offset >= end
        ]
        self._segments = []
        for data in cleaned:
            self._put(data)
        for batch in batches[count:]:
            self._put(batch.raw)
        self.notify()

    def first_retained_offset(self, oldest_ms: int | None, max_bytes: int | None) -> int:
        """Return the first offset within the retention limits of time and size."""
        start = self.start_offset
        excess_bytes = (
            0 if max_bytes is None else self.available_bytes(start, _NO_LIMIT) - max_bytes
        )
        for batch in self.batches():
            header = batch.header
            excess_bytes -= header.size
            too_many = max_bytes is not None and excess_bytes >= 0
            too_old = oldest_ms is not None and 0 <= header.max_timestamp < oldest_ms
            if not (too_many or too_old):
                break
            start = header.next_offset
        return start

    # Reading

    def _locate(self, offset: int) -> tuple[int, int] | None:
        """Return (segment, batch) of the first record at or after the offset."""
        segments = self._segments
        number = bisect_left(segments, offset, key=lambda segment: segment.last_offsets[-1])
        if number == len(segments):
            return None
        return number, segments[number].index_of(offset)

    def aborted_from(self, offset: int) -> list[AbortedTransaction]:
        """Return the transactions that were aborted at or after the offset, in the order of their
        ends.
        """
        found = bisect_left(self._aborted, offset, key=lambda aborted: aborted.last_offset)
        return self._aborted[found:]

    def bytes_before(self, end: int, offset: int, limit: int) -> int:
        """Return the bytes from the batch of the offset to that of ``end``, at most ``limit``."""
        if end >= self.end_offset:
            return self.available_bytes(offset, limit)
        left = self.available_bytes(end, _NO_LIMIT)
        return 0 if offset >= end else min(self.available_bytes(offset, _NO_LIMIT) - left, limit)

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Buffer:
        """Return bytes from the batch of the offset on, at most ``max_bytes``; the last may be
        truncated.

        The first batch is complete if ``at_least_one`` is set, even when it is larger. Without it
        the result is then empty. As in Kafka a read ends with its segment, once segments are large,
        because the bytes of one segment need no copy.
        """
        location = self._locate(offset)
        if location is None:
            return EMPTY
        number, index = location
        first = self._segments[number].size_of(index)
        if first > max_bytes:
            return self._segments[number].read(index, first) if at_least_one else EMPTY
        pieces: list[memoryview] = []
        for segment in self._segments[number:]:
            if max_bytes <= 0 or (pieces and segment.is_large):
                break
            pieces.append(segment.read(index, max_bytes))
            max_bytes -= len(pieces[-1])
            index = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def available_bytes(self, offset: int, limit: int) -> int:
        """Return the bytes from the batch of the offset to the end of the log, at most
        ``limit``.
        """
        location = self._locate(offset)
        if location is None:
            return 0
        number, index = location
        segments = self._segments
        total = segments[number].size - segments[number].start_of(index)
        while total < limit and (number := number + 1) < len(segments):
            total += segments[number].size
        return min(total, limit)

    def raw_batch(self, offset: int) -> memoryview | None:
        """Return the stored bytes of the batch with the offset, for reading or damaging them."""
        location = self._locate(offset) if self.start_offset <= offset < self.end_offset else None
        return None if location is None else self._segments[location[0]].batch(location[1])

    def batches(self, offset: int = 0) -> Iterator[RecordBatch]:
        """Yield the batches from that of the offset on."""
        location = self._locate(max(offset, self.start_offset))
        if location is None:
            return
        number, index = location
        for segment in self._segments[number:]:
            for position in range(index, len(segment.ends)):
                yield RecordBatch.of(segment.batch(position))
            index = 0

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; -1, -1 if unknown."""
        return self.epochs.end_offset(epoch, self.end_offset)

    # Looking up by time

    def offset_for_time(self, timestamp: int) -> TimestampedOffset | None:
        """Return the first record from the log's start on with at least this timestamp."""
        for segment in self._segments:
            if segment.max_timestamps[-1] < timestamp:
                continue
            for index in range(bisect_left(segment.max_timestamps, timestamp), len(segment.ends)):
                found = self._first_record(segment.batch(index), timestamp)
                if found is not None:
                    return found
        return None

    def max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record with the largest timestamp of the log."""
        headers = [batch.header for batch in self.batches(self.start_offset)]
        # Batches that compaction has emptied keep their timestamps.
        largest = max((header.max_timestamp for header in headers if header.count), default=None)
        return None if largest is None else self.offset_for_time(largest)

    def _first_record(self, raw: Buffer, timestamp: int) -> TimestampedOffset | None:
        batch = RecordBatch.of(raw)
        header = batch.header
        if header.max_timestamp < timestamp:
            return None
        try:
            records = batch.records()
        except CorruptBatchError:
            # The records cannot be decoded, so the header has the best available answer.
            return TimestampedOffset(
                header.base_offset, header.max_timestamp, header.partition_leader_epoch
            )
        for record in records:
            if record.timestamp >= timestamp and record.offset >= self.start_offset:
                epoch = header.partition_leader_epoch
                return TimestampedOffset(record.offset, record.timestamp, epoch)
        return None
