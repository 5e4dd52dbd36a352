"""Reading ranges on an executor: assign, seek, poll until every end is reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    KafkaError,
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnknownTopicOrPartitionError,
)
from kohort.spark_connector._arrow import BatchShaper, first_row_at, partition_rows, split_batch
from kohort.spark_connector._consumers import borrowed_consumer
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._log_bounds import log_bounds
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")

MAX_BATCH_BYTES = 8 << 20
"""A batch of Kafka's that unpacks to more goes to Spark in parts."""
MAX_BATCH_ROWS = 1 << 17
"""poll_arrow() counts what is in the rows; this bounds what small ones take besides."""

# The end of a range may hold no record (compaction, transaction markers), so that poll() would
# wait although all has been read; then this is how long.
POLL_MS = 5

CHECK_S, CHECK_MAX_S = 1.0, 10.0
"""Nothing has come for so long: is there anything to wait for? Then that is asked more rarely."""
RETRY_S = 0.1

_MissingRanges = dict[TopicPartition, list[OffsetRange]]


def read_ranges(
    options: SourceOptions, schema: StructType, ranges: Sequence[OffsetRange]
) -> Iterator[pa.RecordBatch]:
    """All records of the ranges, those of a partition in order.

    Raises DataLossError, KafkaTimeoutError when nothing comes for ``kafkaConsumer.pollTimeoutMs``,
    and whatever poll() raises.
    """
    if not ranges:
        return
    shaper = BatchShaper(schema)
    with borrowed_consumer(options.properties, max(each.size for each in ranges)) as consumer:
        for batch in _RangeReader(consumer, options, ranges).run():
            yield from split_batch(shaper.shape(batch), MAX_BATCH_BYTES)


class _RangeReader:
    """One task's ranges on their way; a partition may have several, one behind the other."""

    def __init__(
        self, consumer: KafkaConsumer, options: SourceOptions, ranges: Sequence[OffsetRange]
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._remaining: dict[TopicPartition, list[OffsetRange]] = {}
        for each in sorted(ranges, reverse=True):
            self._remaining.setdefault(each.topic_partition, []).append(each)
        self._suspected: _MissingRanges = {}

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows as they come, only those of the ranges."""
        consumer = self._consumer
        consumer.assign(sorted(self._remaining))
        for tp, ranges in self._remaining.items():
            consumer.seek(tp, ranges[-1].start, until=ranges[-1].end)
        consumer.resume(*self._remaining)  # an earlier task has left them paused
        positions = self._positions()
        idle = _IdleTimer(self._options.poll_timeout_ms)
        while self._remaining:
            polled = self._poll(positions)
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
        """A table, or None when it was an error that may pass, or has been settled."""
        try:
            # Not more than is left: what lies behind a range would be decoded for nothing.
            return self._consumer.poll_arrow(POLL_MS, self._max_rows(positions))
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            if isinstance(error, LogTruncationError) and self._options.fail_on_data_loss:
                raise  # of what was read already
            lost = self._find_missing(refused=True)
            if lost:
                self._skip_or_raise(lost)
            else:
                self._seek_again()
        except TopicRecreatedError as error:
            self._handle_recreation(error)
        except UnknownTopicOrPartitionError:
            pass  # a broker may not know it yet; if it is so, looking will tell
        return None

    def _handle_recreation(self, error: TopicRecreatedError) -> None:
        """Settle the rest of a range whose topic was recreated while it was read.

        Where nothing of the range was read, this consumer has only just heard of the new topic.
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
        """How many rows may still come of what is being read."""
        ends = ((ranges[-1], positions.get(tp)) for tp, ranges in self._remaining.items())
        left = sum(each.end - (each.start if at is None else at) for each, at in ends)
        return max(1, min(left, MAX_BATCH_ROWS))

    def _rows_in_ranges(
        self, polled: pa.RecordBatch, positions: dict[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the ranges that are being read."""
        ends = {tp: ranges[-1].end for tp, ranges in self._remaining.items()}
        if all(at <= ends[tp] for tp, at in positions.items()):
            yield polled
            return
        for rows in partition_rows(polled):
            stop = first_row_at(polled, rows, ends[rows.topic_partition])
            if stop > rows.start:
                yield polled.slice(rows.start, stop - rows.start)

    def _positions(self) -> dict[TopicPartition, int]:
        found = {tp: self._consumer.position(tp) for tp in self._remaining}
        return {tp: at for tp, at in found.items() if at is not None}

    def _advance(self, positions: dict[TopicPartition, int]) -> None:
        """Go to the next range where one has been read to its end."""
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
        """An error stands until a seek, and this one is not true any more."""
        for tp, at in self._positions().items():
            self._consumer.seek(tp, at, until=self._remaining[tp][-1].end)
        time.sleep(RETRY_S)

    def _check_for_loss(self) -> None:
        """Is there still something to wait for? What is not there twice in a row is lost.

        Once could be a broker that has just begun to lead, or to answer.
        """
        lost, before = self._find_missing(refused=False), self._suspected
        self._suspected = lost
        self._skip_or_raise({tp: each for tp, each in lost.items() if before.get(tp) == each})

    def _find_missing(self, *, refused: bool) -> _MissingRanges:
        """What is not in the log of what is to be read next; nothing if no broker can say now.

        ``refused``: a broker has said so of some, so that those just at the end are not among them.
        """
        try:
            found = log_bounds(self._consumer, self._options.properties, self._remaining)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("whether records are still there could not be looked up: %s", str(error))
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
        """Raise for offsets that are not in the log any more, or pass over them."""
        if not lost:
            return
        gone = [each for tp in sorted(lost) for each in lost[tp]]
        said = f"not in the log any more: {', '.join(map(str, gone))}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{said}. They were deleted (retention, or the topic was deleted or made anew) "
                "before they could be read. Option failOnDataLoss=false goes on without them",
                gone,
            )
        logger.warning("%s; going on without them, as failOnDataLoss=false", said)
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
            f"nothing came of {left} for {self._options.poll_timeout_ms} ms "
            "(option kafkaConsumer.pollTimeoutMs): do these offsets exist, are the brokers up?"
        )


class _IdleTimer:
    """How long nothing has come."""

    def __init__(self, most_ms: int) -> None:
        self._most = most_ms / 1000
        self.restart()

    def restart(self) -> None:
        """Something has come."""
        self._since = time.monotonic()
        self._pause = min(CHECK_S, self._most / 4)
        self._due = self._since + self._pause

    @property
    def has_expired(self) -> bool:
        """Whether it is too long."""
        return time.monotonic() - self._since > self._most

    def is_check_due(self) -> bool:
        """Whether to look what there is; then not for a while, and each time for longer."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._pause = min(2 * self._pause, CHECK_MAX_S)
        self._due = now + self._pause
        return True
