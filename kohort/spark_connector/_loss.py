"""Noticing that partitions are gone, shorter than what was read of them, or of another topic."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from kohort import KafkaError, TopicPartition
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._log_bounds import positions_within_log
from kohort.spark_connector._offsets import Offsets, StreamOffset
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._planning import OffsetPlanner
from kohort.spark_connector._ranges import OffsetRange

logger = logging.getLogger("kohort.spark_connector")

TOPIC_IDS_TIMEOUT_MS = 5_000


class LossCheck:
    """Of one run of a stream: it warns of each loss once."""

    def __init__(self, options: SourceOptions) -> None:
        self._fail = options.fail_on_data_loss
        self._properties = options.properties
        self._is_subscribed = options.is_subscribed
        self._unstable: dict[TopicPartition, int] = {}
        """Positions behind the last stable offset, and not behind the log: known to be there."""
        self._warned: set[object] = set()

    def check(
        self,
        start: StreamOffset,
        positions: dict[TopicPartition, int],
        ends: Offsets,
        known: Collection[TopicPartition] | None,
        ids: Mapping[str, str],
    ) -> set[TopicPartition]:
        """The partitions whose offsets in ``start`` are void; DataLossError if the query fails.

        They are no longer subscribed, or they start again and their positions become 0. ``known``:
        all partitions that there are; of those that the query may read, ``positions``, ``ends``,
        and the ``ids`` of their topics, which were looked up after the ends.
        """
        dropped = self._unsubscribed(start)
        done = {tp: at for tp, at in start.end.items() if tp not in dropped}
        recreated = was_recreated(start, ids)
        void = {tp for tp in done if tp.topic in recreated}
        gone = {tp for tp in done if known is not None and tp not in known} - void
        shorter = self._truncated(positions, ends)
        if not (void or gone or shorter):
            return dropped
        said = [
            *(f"topic {topic} was deleted and made anew" for topic in sorted(recreated)),
            *(f"{_name(tp)} is gone" for tp in sorted(gone)),
            *(
                f"{_name(tp)} ends at {ends[tp]}, "
                f"{'read was up to' if tp in done else 'to be read is from'} {positions[tp]}"
                for tp in sorted(shorter)
            ),
        ]
        if self._fail:
            lost = [OffsetRange(*tp, ends[tp], positions[tp]) for tp in shorter]
            lost += [OffsetRange(*tp, done[tp], done[tp]) for tp in (void | gone) - shorter]
            raise DataLossError(
                f"{'; '.join(said)}. Was a topic deleted or made anew? Option "
                "failOnDataLoss=false goes on with what is there, from its beginning",
                sorted(lost),
            )
        news: set[object] = {*gone, *shorter, *((topic, ids[topic]) for topic in recreated)}
        if not self._warned >= news:
            self._warned |= news
            logger.warning("%s; going on, as failOnDataLoss=false", "; ".join(said))
        # Where the log starts behind that, the task that reads it begins there.
        positions |= dict.fromkeys((void | shorter) & positions.keys(), 0)
        return void | shorter | dropped

    def _unsubscribed(self, start: StreamOffset) -> set[TopicPartition]:
        """Partitions of the checkpoint that the options no longer name; warns of each."""
        found = {tp for tp in start.end if not self._is_subscribed(tp)}
        news = sorted(found - self._warned)
        if news:
            self._warned |= set(news)
            named = ", ".join(f"{_name(tp)} (read up to {start.end[tp]})" for tp in news)
            logger.warning(
                "no longer subscribed: %s. The next batch drops them from the checkpoint", named
            )
        return found

    def _truncated(self, positions: Offsets, ends: Offsets) -> set[TopicPartition]:
        """The partitions that end before the position."""
        behind = {tp: at for tp, at in positions.items() if tp in ends and ends[tp] < at}
        asked = {tp: at for tp, at in behind.items() if self._unstable.get(tp) != at}
        try:
            # Members that read what is uncommitted may be ahead of what is stable.
            self._unstable |= {
                tp: asked[tp] for tp in positions_within_log(self._properties, asked)
            }
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("whether records are still there could not be looked up: %s", str(error))
            return set()
        return {tp for tp, at in behind.items() if self._unstable.get(tp) != at}


def replayed_ranges(batch: StreamOffset, options: SourceOptions) -> list[OffsetRange]:
    """The ranges of a batch that is read again, without those of topics made anew since.

    DataLossError for these if the query is to fail.
    """
    ranges = batch.ranges()
    recreated = was_recreated(batch, _current_ids(batch, options))
    lost = [each for each in ranges if each.topic in recreated and each.size]
    if not lost:
        return ranges
    said = (
        f"not in the log any more: {', '.join(map(str, lost))}; "
        f"{', '.join(sorted(recreated))} deleted and made anew since this batch was planned"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{said}. Option failOnDataLoss=false goes on without it", lost)
    logger.warning("%s; going on without it, as failOnDataLoss=false", said)
    return [each for each in ranges if each.topic not in recreated]


def _current_ids(batch: StreamOffset, options: SourceOptions) -> Mapping[str, str]:
    if not batch.ids:
        return {}
    consumer = make_consumer(options.properties, group=False)
    try:
        return OffsetPlanner(consumer, options).ids(batch.end, TOPIC_IDS_TIMEOUT_MS)
    except KafkaError as error:
        logger.warning("whether topics were made anew could not be looked up: %s", str(error))
        return {}
    finally:
        consumer.close()


def was_recreated(start: StreamOffset, ids: Mapping[str, str]) -> set[str]:
    """The topics that have another id than when ``start`` was written."""
    return {topic for topic, before in start.ids.items() if ids.get(topic, before) != before}


def next_ids(
    start: StreamOffset, ids: Mapping[str, str], partitions: Collection[TopicPartition]
) -> dict[str, str]:
    """The ids of the topics of a batch; those of topics that nothing was heard of are kept."""
    known = {**start.ids, **ids}
    return {tp.topic: known[tp.topic] for tp in partitions if tp.topic in known}


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
