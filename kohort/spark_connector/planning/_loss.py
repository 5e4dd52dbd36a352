"""Detection of deleted, truncated and recreated partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from kohort import KafkaError, TopicPartition
from kohort.errors import InvalidOptionError
from kohort.logs import error_text, get_logger
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._offsets import Offsets, StreamOffset, short
from kohort.spark_connector._ranges import OffsetRange, SkippedData
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._log_bounds import positions_within_log
from kohort.spark_connector.planning._planning import OffsetPlanner

logger = get_logger("kohort.spark_connector")

TOPIC_IDS_TIMEOUT_MS = 5_000


class Losses(NamedTuple):
    """Result of a check."""

    void: set[TopicPartition]
    """Partitions whose offsets no longer apply.

    They are no longer subscribed, or reading starts again at position 0.
    """
    skipped: Sequence[SkippedData] = ()
    """Losses for which the query has rows. Those of deleted partitions last."""


class LossCheck:
    """Check of one run of a stream. It warns of each loss once."""

    def __init__(self, options: SourceOptions) -> None:
        self._fail = options.fail_on_data_loss
        self._properties = options.properties
        self._options = options
        self._unstable: dict[TopicPartition, int] = {}
        """Positions past the last stable offset that are known to be within the log."""
        self._warned: set[object] = set()

    def check(
        self,
        start: StreamOffset,
        positions: dict[TopicPartition, int],
        ends: Offsets,
        known: Collection[TopicPartition] | None,
        ids: Mapping[str, str],
    ) -> Losses:
        """Return the losses since ``start``, and change ``positions`` accordingly.

        Where only the group's offset is past the log end, reading starts at the checkpoint's.
        ``known`` has all existing partitions. ``positions`` and ``ends`` belong to the partitions
        that the query may read. The topic ``ids`` were looked up after the ends. Raise
        DataLossError if the query has to fail.
        """
        check_topics(start, self._options)
        dropped = self._unsubscribed(start)
        done = {tp: at for tp, at in start.end.items() if tp not in dropped}
        recreated = was_recreated(start, ids)
        void = {tp for tp in done if tp.topic in recreated}
        gone = {tp for tp in done if known is not None and tp not in known} - void
        shorter = self._truncated(positions, ends)
        if not (void or gone or shorter):
            return Losses(dropped)
        by_group = {tp for tp in shorter if tp in done and done[tp] <= ends[tp]} - void
        truncations = {
            tp: f"{_name(tp)} ends at {ends[tp]} but "
            f"{'was read up to' if tp in done else 'is read from'} {positions[tp]}"
            for tp in sorted(shorter - by_group)
        }
        losses = [
            *(f"topic {topic} was deleted and recreated" for topic in sorted(recreated)),
            *(f"{_name(tp)} was deleted" for tp in sorted(gone)),
            *truncations.values(),
            *(
                f"{_name(tp)} ends at {ends[tp]} but the group's offset is {positions[tp]}"
                for tp in sorted(by_group)
            ),
        ]
        if self._fail:
            lost = [OffsetRange(*tp, ends[tp], positions[tp]) for tp in shorter]
            lost += [OffsetRange(*tp, done[tp], done[tp]) for tp in (void | gone) - shorter]
            effect = (
                "continues at the offsets of the checkpoint"
                if by_group == void | gone | shorter
                else "reads the existing records from the beginning of the log"
            )
            raise DataLossError(
                f"data loss: {', '.join(losses)}. Option failOnDataLoss=false {effect}",
                sorted(lost),
            )
        skipped = [
            *(SkippedData(tp, done[tp], None, f"topic {tp.topic} was recreated") for tp in void),
            *(SkippedData(tp, done[tp], None, "was deleted") for tp in gone),
            *(
                SkippedData(tp, ends[tp], positions[tp], reason)
                for tp, reason in truncations.items()
                if tp not in void
            ),
        ]
        new_losses: set[object] = {*gone, *shorter, *((topic, ids[topic]) for topic in recreated)}
        if not self._warned >= new_losses:
            self._warned |= new_losses
            logger.warning("%s. The query continues (failOnDataLoss=false)", ", ".join(losses))
        # If the log starts later, the task starts there.
        positions |= dict.fromkeys((void | shorter) & positions.keys(), 0)
        positions |= {tp: done[tp] for tp in by_group}
        return Losses(
            void | shorter | dropped, sorted(skipped) if self._options.include_errors else ()
        )

    def _unsubscribed(self, start: StreamOffset) -> set[TopicPartition]:
        """Return checkpointed partitions that the options no longer name. Warn once of each."""
        found = {tp for tp in start.end if not self._options.is_subscribed(tp)}
        unsubscribed = sorted(found - self._warned)
        if unsubscribed:
            self._warned |= set(unsubscribed)
            named = ", ".join(f"{_name(tp)} (read up to {start.end[tp]})" for tp in unsubscribed)
            logger.warning(
                "no longer subscribed: %s. The next batch drops them from the checkpoint", named
            )
        return found

    def _truncated(self, positions: Offsets, ends: Offsets) -> set[TopicPartition]:
        """Return the partitions that end before their position."""
        behind = {tp: at for tp, at in positions.items() if tp in ends and ends[tp] < at}
        unchecked = {tp: at for tp, at in behind.items() if self._unstable.get(tp) != at}
        try:
            # Members with read_uncommitted may be ahead of the last stable offset.
            self._unstable |= {
                tp: unchecked[tp] for tp in positions_within_log(self._properties, unchecked)
            }
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.info("the lookup of the log bounds failed: %s", error_text(error))
            return set()
        return {tp for tp, at in behind.items() if self._unstable.get(tp) != at}


def replayed_ranges(
    batch: StreamOffset, options: SourceOptions
) -> tuple[list[OffsetRange], list[SkippedData]]:
    """Return the ranges of a batch that is replayed, and apart from them those of recreated topics.

    Raise DataLossError for a recreated topic if the query has to fail. Raise InvalidOptionError if
    the batch belongs to another query.
    """
    check_topics(batch, options)
    ranges = batch.ranges()
    recreated = was_recreated(batch, _current_ids(batch, options))
    lost = [each for each in ranges if each.topic in recreated and each.size]
    if not lost:
        return ranges, []
    cause = (
        f"no longer in the log: {', '.join(map(str, lost))}. Topics "
        f"{', '.join(sorted(recreated))} were deleted and recreated after this batch was planned"
    )
    if options.fail_on_data_loss:
        raise DataLossError(f"{cause}. Option failOnDataLoss=false continues without them", lost)
    logger.warning("%s. The query continues without them (failOnDataLoss=false)", cause)
    reason = "the topic was recreated after this batch was planned"
    return (
        [each for each in ranges if each.topic not in recreated],
        [SkippedData(each.topic_partition, each.start, each.end, reason) for each in lost],
    )


def _current_ids(batch: StreamOffset, options: SourceOptions) -> Mapping[str, str]:
    if not batch.ids:
        return {}
    consumer = make_consumer(options.properties, group=False)
    try:
        return OffsetPlanner(consumer, options).ids(batch.end, TOPIC_IDS_TIMEOUT_MS)
    except KafkaError as error:
        logger.warning("the lookup of the topic ids failed: %s", error_text(error))
        return {}
    finally:
        consumer.close()


def check_topics(offset: StreamOffset, options: SourceOptions) -> None:
    """Raise InvalidOptionError if no topic of the checkpoint is subscribed now.

    The checkpoint is then probably that of another query.
    """
    topics = sorted({tp.topic for tp in offset.end})
    if topics and not options.allow_other_topics and not any(map(options.reads_topic, topics)):
        raise InvalidOptionError(
            f"the checkpoint is of {short(', '.join(topics))}, and the query reads none of these "
            "topics. Set another checkpointLocation, because this one belongs to another query. "
            "Option allowOtherTopics=true drops the old topics from the checkpoint"
        )


def was_recreated(start: StreamOffset, ids: Mapping[str, str]) -> set[str]:
    """Return the topics whose id differs from the one in ``start``."""
    return {topic for topic, before in start.ids.items() if ids.get(topic, before) != before}


def next_ids(
    start: StreamOffset, ids: Mapping[str, str], partitions: Collection[TopicPartition]
) -> dict[str, str]:
    """Return the topic ids of a batch. Ids of topics that were not looked up are kept."""
    known = {**start.ids, **ids}
    return {tp.topic: known[tp.topic] for tp in partitions if tp.topic in known}


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
