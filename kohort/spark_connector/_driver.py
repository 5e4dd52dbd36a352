"""The driver's side of a stream: what the next micro-batch is, and what is done with.

All of it runs in the one thread in which Spark calls the reader.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import KafkaError
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._offsets import Offsets, StreamOffset
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._planning import Planner
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")

ENDS_REFRESH_S = 0.1
"""An idle query asks for the next batch every 10 ms; the brokers are asked no more often."""
PARTITIONS_REFRESH_S = 10.0
COMMIT_RETRY_S = 1.0
COMMIT_TIMEOUT_MS = 5_000


class StreamDriver:
    """Plans micro-batches and commits finished ones; lives as long as the query runs."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        options: SourceOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._planner = Planner(consumer, options)
        self._clock = clock
        self._partitions: set[TopicPartition] = set()
        self._partitions_due = self._ends_due = float("-inf")
        self._ends: dict[TopicPartition, int] = {}
        self._target: dict[TopicPartition, int] | None = None
        self._begun = False
        self._starts: dict[TopicPartition, int] = {}  # of partitions that no batch has held yet
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due = float("-inf")
        self._warned: set[TopicPartition] = set()

    def prepare_available_now(self) -> None:
        """Let the stream end where the partitions end now."""
        self._refresh(force=True)
        self._target = dict(self._ends)

    def next_offset(self, start: StreamOffset, max_rows: int | None) -> StreamOffset:
        """The batch after ``start``, or ``start`` itself when there is nothing new.

        Being asked proves that the batch up to ``start`` is finished, so it is committed.
        """
        self._commit(start.end)
        self._refresh()
        first = not self._begun and not start.end
        self._begun = True
        positions = self._positions(start, first)
        ends = {tp: self._end(tp, at) for tp, at in positions.items()}
        if max_rows is not None:
            ends = limited(positions, ends, max_rows)
        if ends == positions and not (first and ends):
            return start
        kept = {tp: at for tp, at in start.end.items() if tp not in positions}
        return StreamOffset(positions | kept, ends | kept)

    def latest(self) -> dict[TopicPartition, int]:
        """The ends of the partitions, as last seen."""
        return dict(self._ends)

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    # -- where partitions start and end -------------------------------------------------------

    def _positions(self, start: StreamOffset, first: bool) -> dict[TopicPartition, int]:
        new = self._partitions - start.end.keys() - self._starts.keys()
        if new and not (first or self._target is None):
            # What came up after the target was set is no part of this run.
            new &= self._target.keys()
        if new:
            self._starts |= self._resolve(new, first)
        positions = {tp: start.end.get(tp, self._starts.get(tp)) for tp in self._partitions}
        found = {tp: at for tp, at in positions.items() if at is not None}
        self._check_loss(start.end, found)
        return found

    def _resolve(self, new: set[TopicPartition], first: bool) -> dict[TopicPartition, int]:
        """Where partitions start: committed, else as asked for; later ones at their beginning.

        What was not committed is at once, so that a restart before the first batch starts there.
        """
        found = self._planner.committed(new) if self._options.group_id is not None else {}
        self._committed |= found
        left = new - found.keys()
        rest = self._planner.starts(left, among=new) if first else self._planner.earliest(left)
        resolved = rest | found
        self._commit(resolved)
        return resolved

    def _end(self, tp: TopicPartition, position: int) -> int:
        end = self._ends.get(tp, position)
        if self._target is not None:
            end = min(end, self._target.get(tp, position))
        return max(end, position)

    def _check_loss(self, done: Offsets, positions: dict[TopicPartition, int]) -> None:
        """Raise for partitions that are gone or shorter than what was read; or start them anew."""
        gone = [tp for tp in done if tp not in self._partitions]
        shorter = [tp for tp, at in positions.items() if tp in self._ends and self._ends[tp] < at]
        if not gone and not shorter:
            return
        said = [f"{tp.topic}-{tp.partition} is gone" for tp in sorted(gone)]
        said += [
            f"{tp.topic}-{tp.partition} ends at {self._ends[tp]}, read was up to {positions[tp]}"
            for tp in sorted(shorter)
        ]
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{'; '.join(said)}. Was a topic deleted or made anew? Option "
                "failOnDataLoss=false goes on with what is there, from its beginning",
                [
                    *(OffsetRange(*tp, done[tp], done[tp]) for tp in sorted(gone)),
                    *(OffsetRange(*tp, self._ends[tp], positions[tp]) for tp in sorted(shorter)),
                ],
            )
        if not self._warned >= {*gone, *shorter}:
            self._warned |= {*gone, *shorter}
            logger.warning("%s; going on, as failOnDataLoss=false", "; ".join(said))
        if shorter:
            positions |= self._planner.earliest(shorter)

    def _refresh(self, force: bool = False) -> None:
        """Look at the cluster again if it is time to; an outage leaves what is known."""
        now = self._clock()
        if self._target is not None or (now < self._ends_due and not force):
            return
        try:
            if force or now >= self._partitions_due:
                self._partitions = self._planner.partitions(must_exist=not self._begun)
                self._partitions_due = now + PARTITIONS_REFRESH_S
            self._ends = self._planner.latest(self._partitions)
        except KafkaError as error:
            if not error.retriable or not self._begun:
                raise
            logger.warning("the ends of the partitions could not be looked up: %s", error)
        self._ends_due = self._clock() + ENDS_REFRESH_S

    # -- what is done with --------------------------------------------------------------------

    def _commit(self, offsets: Offsets) -> None:
        """Commit to the group, if there is one; a commit that fails is tried again later."""
        if self._options.group_id is None or self._clock() < self._commit_due:
            return
        changed = {tp: at for tp, at in offsets.items() if self._committed.get(tp) != at}
        if not changed:
            return
        try:
            self._consumer.commit(changed, timeout_ms=COMMIT_TIMEOUT_MS)
        except KafkaError as error:
            # Spark's checkpoint is what counts for the query; the group's offsets tell others.
            self._commit_due = self._clock() + COMMIT_RETRY_S
            logger.warning("offsets were not committed to %s: %s", self._options.group_id, error)
        else:
            self._committed |= changed


def limited(
    positions: dict[TopicPartition, int], ends: dict[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends with at most so many offsets in all, each partition having its share of them."""
    ahead = {tp: ends[tp] - at for tp, at in positions.items()}
    total = sum(ahead.values())
    if total <= most:
        return ends
    shares = {tp: most * size // total for tp, size in ahead.items()}
    rest = most - sum(shares.values())
    for tp in sorted(ahead, key=lambda tp: (shares[tp] - most * ahead[tp] / total, tp)):
        if rest > 0 and shares[tp] < ahead[tp]:
            shares[tp] += 1
            rest -= 1
    return {tp: at + shares[tp] for tp, at in positions.items()}
