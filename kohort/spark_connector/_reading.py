"""Reading ranges on an executor: assign, seek, poll until every end is reached."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kohort.spark_connector._arrow import BatchShaper, before, runs, split
from kohort.spark_connector._consumers import borrowed
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")

MOST_BYTES = 8 << 20
"""A batch of Kafka's that unpacks to more goes to Spark in parts."""
MOST_ROWS = 1 << 17
"""poll_arrow() counts what is in the rows; this bounds what small ones take besides."""

# The end of a range may hold no record (compaction, transaction markers), so that poll() would
# wait although all has been read; then this is how long.
POLL_MS = 5


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

    def run(self) -> Iterator[pa.RecordBatch]:
        """Rows as they come, only those of the ranges."""
        consumer = self._consumer
        consumer.assign(sorted(self._left))
        for tp, ranges in self._left.items():
            consumer.seek(tp, ranges[-1].start, until=ranges[-1].end)
        consumer.resume(*self._left)  # an earlier task has left them paused
        positions = self._positions()
        moved = time.monotonic()
        while self._left:
            try:
                # Not more than is left: what lies behind a range would be decoded for nothing.
                polled = consumer.poll_arrow(POLL_MS, self._most(positions))
            except OffsetOutOfRangeError:
                self._settle_loss()
                continue
            earlier, positions = positions, self._positions()
            if polled.num_rows:
                yield from self._inside(polled, positions)
            self._advance(positions)
            if polled.num_rows or positions != earlier:
                moved = time.monotonic()
            elif (time.monotonic() - moved) * 1000 > self._options.poll_timeout_ms:
                raise self._stuck()

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

    def _settle_loss(self) -> None:
        """Raise for offsets that are not in the log any more, or pass over them."""
        consumer = self._consumer
        first = consumer.beginning_offsets(self._left)
        behind = consumer.end_offsets(self._left)
        lost: list[OffsetRange] = []
        for tp, ranges in self._left.items():
            at = consumer.position(tp) or ranges[-1].start
            current = ranges[-1]
            if at < first[tp]:
                lost.append(current._replace(start=at, end=min(first[tp], current.end)))
                consumer.seek(tp, min(first[tp], current.end), until=current.end)
            elif at > behind[tp]:
                lost.append(current._replace(start=at))
                consumer.seek(tp, current.end, until=current.end)
        if not lost:
            return
        said = f"not in the log any more: {', '.join(map(str, lost))}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{said}. They were deleted (retention, or the topic was made anew) before they "
                "could be read. Option failOnDataLoss=false goes on without them",
                lost,
            )
        logger.warning("%s; going on without them, as failOnDataLoss=false", said)

    def _stuck(self) -> KafkaTimeoutError:
        left = ", ".join(str(ranges[-1]) for ranges in self._left.values())
        return KafkaTimeoutError(
            f"nothing came of {left} for {self._options.poll_timeout_ms} ms "
            "(option kafkaConsumer.pollTimeoutMs): do these offsets exist, are the brokers up?"
        )
