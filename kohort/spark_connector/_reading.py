"""Reading of ranges on an executor: assign, seek, and poll until the end of every range."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    CredentialsUnavailableError,
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    NoBrokersAvailable,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kohort.logs import error_text, get_logger
from kohort.spark_connector._arrow import (
    BatchShaper,
    first_row_at,
    partition_rows,
    split_batch,
)
from kohort.spark_connector._consumers import borrowed_consumer, skipped_data
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._ranges import OffsetRange, SkippedData
from kohort.spark_connector._schema import has_errors
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._log_bounds import log_bounds

logger = get_logger("kohort.spark_connector")

MAX_BATCH_BYTES = 8 << 20
"""Limit of a batch for Spark. A larger batch of Kafka's is split."""
MAX_BATCH_ROWS = 1 << 17
"""Limit of rows, because poll_arrow() does not count the fixed memory of a row."""

# The end of a range may hold no record (compaction, transaction markers). poll() then waits for
# this time although all records have been read.
POLL_MS = 5

CHECK_S, CHECK_MAX_S = 1.0, 10.0
"""Seconds without records before the first check for a loss, and the longest interval."""
RETRY_S = 0.1

_MissingRanges = dict[TopicPartition, list[OffsetRange]]


def read_ranges(
    options: SourceOptions,
    schema: StructType,
    ranges: Sequence[OffsetRange],
    skipped: Sequence[SkippedData] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield all records of the ranges, in order within a partition.

    A schema with errors gets a row for each piece of data that the task skips, and for ``skipped``,
    which the driver has found. Raise DataLossError, KafkaTimeoutError if nothing arrives for
    ``kafkaConsumer.pollTimeoutMs``, and all errors of poll().
    """
    shows_errors = has_errors(schema)
    shaper = BatchShaper(schema)
    if skipped and shows_errors:
        yield shaper.rows_of(skipped)
    if not ranges:
        return
    with borrowed_consumer(options.properties, max(each.size for each in ranges)) as consumer:
        reader = _RangeReader(consumer, options, ranges)
        for batch in reader.run():
            yield from split_batch(shaper.shape(batch), MAX_BATCH_BYTES)
            if (found := reader.take_skipped()) and shows_errors:
                yield shaper.rows_of(found)
        if (found := reader.take_skipped()) and shows_errors:
            yield shaper.rows_of(found)


class _RangeReader:
    """Reader of one task's ranges. A partition may have several ranges in sequence."""

    def __init__(
        self, consumer: KafkaConsumer, options: SourceOptions, ranges: Sequence[OffsetRange]
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._remaining: dict[TopicPartition, list[OffsetRange]] = {}
        for each in sorted(ranges, reverse=True):
            self._remaining.setdefault(each.topic_partition, []).append(each)
        self._suspected: _MissingRanges = {}
        self._skipped: list[SkippedData] = []
        skipped_data(consumer)  # of the task before

    def take_skipped(self) -> list[SkippedData]:
        """Return the data without rows since the last call, limited to the ranges."""
        found, self._skipped = self._skipped, []
        return found

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield batches as they arrive, limited to the ranges."""
        consumer = self._consumer
        consumer.assign(sorted(self._remaining))
        for tp, ranges in self._remaining.items():
            consumer.seek(tp, ranges[-1].start, until=ranges[-1].end)
        consumer.resume(*self._remaining)  # the previous task paused them
        positions = self._positions()
        idle = _IdleTimer(self._options.poll_timeout_ms)
        while self._remaining:
            polled = self._poll(positions)
            self._note_skipped()
            earlier, positions = positions, self._positions()
            if polled is not None and polled.num_rows:
                yield from self._rows_in_ranges(polled, positions)
            self._advance(positions)
            if positions != earlier or (polled is not None and polled.num_rows):
                idle.restart()
                self._suspected = {}
            elif idle.is_check_due():
                self._check_for_loss()
            elif idle.has_expired:
                raise self._timeout_error()

    def _poll(self, positions: dict[TopicPartition, int]) -> pa.RecordBatch | None:
        """Return a table, or None after an error that is transient or handled."""
        try:
            # Poll no more rows than are left: rows past a range would be decoded and dropped.
            return self._consumer.poll_arrow(POLL_MS, self._max_rows(positions))
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            if isinstance(error, LogTruncationError) and self._options.fail_on_data_loss:
                raise  # it concerns records that were already read
            lost = self._find_missing(refused=True)
            if lost:
                self._skip_or_raise(lost)
            else:
                self._seek_again()
        except TopicRecreatedError as error:
            self._handle_recreation(error)
        except UnknownTopicOrPartitionError:
            pass  # a broker may not know it yet: _check_for_loss() decides
        return None

    def _note_skipped(self) -> None:
        """Note data that the consumer has skipped, limited to the current ranges."""
        for error in skipped_data(self._consumer):
            tp = error.topic_partition
            if tp not in self._remaining or error.offset is None:
                continue
            current = self._remaining[tp][-1]
            start, end = max(error.offset, current.start), current.end
            if error.next_offset is not None:
                end = min(end, error.next_offset)
            if start < end:
                self._skipped.append(SkippedData(tp, start, end, error.reason, error.raw))

    def _handle_recreation(self, error: TopicRecreatedError) -> None:
        """Skip the rest of a range whose topic was recreated while it was read, or raise.

        If the reader has read nothing of the range, it seeks again: the consumer only now learned
        the new topic.
        """
        tp = error.topic_partition
        if tp not in self._remaining or tp is None:
            return
        current, *later = reversed(self._remaining[tp])
        if error.offset == current.start:
            self._consumer.seek(tp, current.start, until=current.end)
        else:
            self._skip_or_raise({tp: [current._replace(start=error.offset or 0), *later]})

    def _max_rows(self, positions: dict[TopicPartition, int]) -> int:
        """Return how many rows of the current ranges may still arrive."""
        ends = ((ranges[-1], positions.get(tp)) for tp, ranges in self._remaining.items())
        left = sum(each.end - (each.start if at is None else at) for each, at in ends)
        return max(1, min(left, MAX_BATCH_ROWS))

    def _rows_in_ranges(
        self, polled: pa.RecordBatch, positions: dict[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows within the current ranges."""
        ends = {tp: ranges[-1].end for tp, ranges in self._remaining.items()}
        if all(at <= ends[tp] for tp, at in positions.items()):
            yield polled
            return
        for rows in partition_rows(polled):
            stop = first_row_at(polled, rows, ends[rows.topic_partition])
            if stop > rows.start:
                yield polled.slice(rows.start, stop - rows.start)

    def _positions(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for tp in self._remaining:
            try:
                found[tp] = self._consumer.position(tp)
            except (NoBrokersAvailable, CredentialsUnavailableError):
                raise
            except KafkaTimeoutError:
                continue  # it is looked up again with the next batch
        return found

    def _advance(self, positions: dict[TopicPartition, int]) -> None:
        """Start the next range of each partition whose range is complete."""
        for tp, at in positions.items():
            if at < self._remaining[tp][-1].end:
                continue
            self._remaining[tp].pop()
            if self._remaining[tp]:
                current = self._remaining[tp][-1]
                self._consumer.seek(tp, current.start, until=current.end)
            else:
                del self._remaining[tp]
                self._consumer.pause(tp)

    def _seek_again(self) -> None:
        """Seek to the same positions, because an error persists until a seek."""
        for tp, at in self._positions().items():
            self._consumer.seek(tp, at, until=self._remaining[tp][-1].end)
        time.sleep(RETRY_S)

    def _check_for_loss(self) -> None:
        """Look for lost offsets. Offsets that are missing twice in a row are lost.

        Offsets may be missing once if a broker has just become the leader.
        """
        lost, before = self._find_missing(refused=False), self._suspected
        self._suspected = lost
        self._skip_or_raise({tp: each for tp, each in lost.items() if before.get(tp) == each})

    def _find_missing(self, *, refused: bool) -> _MissingRanges:
        """Return the offsets to read next that are not in the log. Return {} if no broker responds.

        ``refused`` says that a broker has refused some of them, so positions at the log end are not
        missing.
        """
        try:
            found = log_bounds(self._consumer, self._options.properties, self._remaining)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("the lookup of the log bounds failed: %s", error_text(error))
            return {}
        lost: _MissingRanges = {}
        positions = self._positions()
        for tp, ranges in self._remaining.items():
            current = ranges[-1]._replace(start=positions.get(tp, ranges[-1].start))
            log = found[tp]
            if log is None or log.end < current.start + (not refused):
                lost[tp] = [current, *reversed(ranges[:-1])]
            elif current.start < log.start:
                lost[tp] = [current._replace(end=min(log.start, current.end))]
        return lost

    def _skip_or_raise(self, lost: _MissingRanges) -> None:
        """Raise for offsets that are no longer in the log, or skip them."""
        if not lost:
            return
        gone = [each for tp in sorted(lost) for each in lost[tp]]
        cause = f"no longer in the log: {', '.join(map(str, gone))}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{cause}. Retention deleted the records, or the topic was deleted or recreated. "
                "Option failOnDataLoss=false continues without them",
                gone,
            )
        logger.warning("%s. The task continues without them (failOnDataLoss=false)", cause)
        self._skipped += [
            SkippedData(each.topic_partition, each.start, each.end, "no longer in the log")
            for each in gone
        ]
        for tp, each in lost.items():
            ranges = self._remaining[tp]
            if each[-1].end == ranges[0].end:
                del self._remaining[tp]
                self._consumer.pause(tp)
            else:
                self._consumer.seek(tp, each[-1].end, until=ranges[-1].end)

    def _timeout_error(self) -> KafkaTimeoutError:
        left = ", ".join(str(ranges[-1]) for ranges in self._remaining.values())
        return KafkaTimeoutError(
            f"no records of {left} arrived for {self._options.poll_timeout_ms} ms. Check that the "
            "brokers are available, or raise option kafkaConsumer.pollTimeoutMs"
        )


class _IdleTimer:
    """Timer of the time without records."""

    def __init__(self, most_ms: int) -> None:
        self._most = most_ms / 1000
        self.restart()

    def restart(self) -> None:
        """Restart the timer, because records have arrived."""
        self._since = time.monotonic()
        self._pause = min(CHECK_S, self._most / 4)
        self._due = self._since + self._pause

    @property
    def has_expired(self) -> bool:
        """True if no records have arrived for too long."""
        return time.monotonic() - self._since > self._most

    def is_check_due(self) -> bool:
        """True if it is time to check for a loss. The intervals between checks double."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._pause = min(2 * self._pause, CHECK_MAX_S)
        self._due = now + self._pause
        return True
