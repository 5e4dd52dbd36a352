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
from kohort.spark_connector._arrow import BatchShaper, before, runs, split
from kohort.spark_connector._consumers import borrowed
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._query_bounds import limits
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")

MOST_BYTES = 8 << 20
"""A batch of Kafka's that unpacks to more goes to Spark in parts."""
MOST_ROWS = 1 << 17
"""poll_arrow() counts what is in the rows; this bounds what small ones take besides."""

# The end of a range may hold no record (compaction, transaction markers), so that poll() would
# wait although all has been read; then this is how long.
POLL_MS = 5

LOOK_S, LOOK_MOST_S = 1.0, 10.0
"""Nothing has come for so long: is there anything to wait for? Then that is asked more rarely."""
RETRY_S = 0.1

_Lost = dict[TopicPartition, list[OffsetRange]]


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
    with borrowed(options.properties, max(each.size for each in ranges)) as consumer:
        for batch in _Reading(consumer, options, ranges).run():
            yield from split(shaper.shape(batch), MOST_BYTES)


class _Reading:
    """One task's ranges on their way; a partition may have several, one behind the other."""

    def __init__(
        self, consumer: KafkaConsumer, options: SourceOptions, ranges: Sequence[OffsetRange]
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._left: dict[TopicPartition, list[OffsetRange]] = {}
        for each in sorted(ranges, reverse=True):
            self._left.setdefault(each.topic_partition, []).append(each)
        self._suspected: _Lost = {}

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows as they come, only those of the ranges."""
        consumer = self._consumer
        consumer.assign(sorted(self._left))
        for tp, ranges in self._left.items():
            consumer.seek(tp, ranges[-1].start, until=ranges[-1].end)
        consumer.resume(*self._left)  # an earlier task has left them paused
        positions = self._positions()
        silence = _Silence(self._options.poll_timeout_ms)
        while self._left:
            polled = self._poll(positions)
            earlier, positions = positions, self._positions()
            if polled is not None and polled.num_rows:
                yield from self._inside(polled, positions)
            self._advance(positions)
            if positions != earlier or (polled is not None and polled.num_rows):
                silence.end()
                self._suspected = {}
            elif silence.look_is_due():
                self._look()
            elif silence.over:
                raise self._stuck()

    def _poll(self, positions: dict[TopicPartition, int]) -> pa.RecordBatch | None:
        """A table, or None when it was an error that may pass, or has been settled."""
        try:
            # Not more than is left: what lies behind a range would be decoded for nothing.
            return self._consumer.poll_arrow(POLL_MS, self._most(positions))
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            if isinstance(error, LogTruncationError) and self._options.fail_on_data_loss:
                raise  # of what was read already
            lost = self._missing(refused=True)
            if lost:
                self._set(lost)
            else:
                self._ask_again()
        except TopicRecreatedError as error:
            self._recreated(error)
        except UnknownTopicOrPartitionError:
            pass  # a broker may not know it yet; if it is so, looking will tell
        return None

    def _recreated(self, error: TopicRecreatedError) -> None:
        """Settle the rest of a range whose topic was recreated while it was read.

        Where nothing of the range was read, this consumer has only just heard of the new topic.
        """
        tp = error.topic_partition
        if tp not in self._left or tp is None:
            return
        current, *later = reversed(self._left[tp])
        if error.offset == current.start:
            self._consumer.seek(tp, current.start, until=current.end)
        else:
            self._set({tp: [current._replace(start=error.offset or 0), *later]})

    def _most(self, positions: dict[TopicPartition, int]) -> int:
        """How many rows may still come of what is being read."""
        ends = ((ranges[-1], positions.get(tp)) for tp, ranges in self._left.items())
        left = sum(each.end - (each.start if at is None else at) for each, at in ends)
        return max(1, min(left, MOST_ROWS))

    def _inside(
        self, polled: pa.RecordBatch, positions: dict[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the ranges that are being read."""
        ends = {tp: ranges[-1].end for tp, ranges in self._left.items()}
        if all(at <= ends[tp] for tp, at in positions.items()):
            yield polled
            return
        for run in runs(polled):
            stop = before(polled, run, ends[run.topic_partition])
            if stop > run.start:
                yield polled.slice(run.start, stop - run.start)

    def _positions(self) -> dict[TopicPartition, int]:
        found = {tp: self._consumer.position(tp) for tp in self._left}
        return {tp: at for tp, at in found.items() if at is not None}

    def _advance(self, positions: dict[TopicPartition, int]) -> None:
        """Go to the next range where one has been read to its end."""
        for tp, at in positions.items():
            if at < self._left[tp][-1].end:
                continue
            self._left[tp].pop()
            if self._left[tp]:
                current = self._left[tp][-1]
                self._consumer.seek(tp, current.start, until=current.end)
            else:
                del self._left[tp]
                self._consumer.pause(tp)

    def _ask_again(self) -> None:
        """An error stands until a seek, and this one is not true any more."""
        for tp, at in self._positions().items():
            self._consumer.seek(tp, at, until=self._left[tp][-1].end)
        time.sleep(RETRY_S)

    def _look(self) -> None:
        """Is there still something to wait for? What is not there twice in a row is lost.

        Once could be a broker that has just begun to lead, or to answer.
        """
        lost, before = self._missing(refused=False), self._suspected
        self._suspected = lost
        self._set({tp: each for tp, each in lost.items() if before.get(tp) == each})

    def _missing(self, *, refused: bool) -> _Lost:
        """What is not in the log of what is to be read next; nothing if no broker can say now.

        ``refused``: a broker has said so of some, so that those just at the end are not among them.
        """
        try:
            found = limits(self._consumer, self._options.properties, self._left)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("whether records are still there could not be looked up: %s", str(error))
            return {}
        lost: _Lost = {}
        positions = self._positions()
        for tp, ranges in self._left.items():
            current = ranges[-1]._replace(start=positions.get(tp, ranges[-1].start))
            log = found[tp]
            if log is None or log.end < current.start + (not refused):
                lost[tp] = [current, *reversed(ranges[:-1])]
            elif current.start < log.start:
                lost[tp] = [current._replace(end=min(log.start, current.end))]
        return lost

    def _set(self, lost: _Lost) -> None:
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
            ranges = self._left[tp]
            if each[-1].end == ranges[0].end:
                del self._left[tp]
                self._consumer.pause(tp)
            else:
                self._consumer.seek(tp, each[-1].end, until=ranges[-1].end)

    def _stuck(self) -> KafkaTimeoutError:
        left = ", ".join(str(ranges[-1]) for ranges in self._left.values())
        return KafkaTimeoutError(
            f"nothing came of {left} for {self._options.poll_timeout_ms} ms "
            "(option kafkaConsumer.pollTimeoutMs): do these offsets exist, are the brokers up?"
        )


class _Silence:
    """How long nothing has come."""

    def __init__(self, most_ms: int) -> None:
        self._most = most_ms / 1000
        self.end()

    def end(self) -> None:
        """Something has come."""
        self._since = time.monotonic()
        self._pause = min(LOOK_S, self._most / 4)
        self._due = self._since + self._pause

    @property
    def over(self) -> bool:
        """Whether it is too long."""
        return time.monotonic() - self._since > self._most

    def look_is_due(self) -> bool:
        """Whether to look what there is; then not for a while, and each time for longer."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._pause = min(2 * self._pause, LOOK_MOST_S)
        self._due = now + self._pause
        return True
