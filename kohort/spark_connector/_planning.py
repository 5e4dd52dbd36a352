"""On the driver: which partitions there are, and what offsets the options stand for."""

from __future__ import annotations

import re
from collections.abc import Collection

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import InvalidOptionError, UnknownTopicOrPartitionError
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._offsets import EARLIEST, LATEST, Offsets, nested
from kohort.spark_connector._options import COMMITTED, SourceOptions
from kohort.spark_connector._ranges import OffsetRange


class Planner:
    """Looks offsets up with a consumer that is lent to it; all of its methods do I/O."""

    def __init__(self, consumer: KafkaConsumer, options: SourceOptions) -> None:
        self._consumer = consumer
        self._options = options

    def partitions(self, *, must_exist: bool = True) -> set[TopicPartition]:
        """The partitions to read, as of now.

        UnknownTopicOrPartitionError for what is not there; without ``must_exist`` it is left out.
        """
        names = self._consumer.topics()
        if self._options.pattern is not None:
            pattern = re.compile(self._options.pattern)
            return self._of({name for name in names if pattern.fullmatch(name)})
        if self._options.topics:
            wanted = set(self._options.topics)
        else:
            wanted = {tp.topic for tp in self._options.assigned}
        missing = wanted - names
        if missing and must_exist:
            raise UnknownTopicOrPartitionError(
                f"no topic is called {', '.join(sorted(missing))}: create it before it is read, or "
                "give option subscribePattern, which may match topics that are made later"
            )
        found = self._of(wanted & names)
        if self._options.assigned:
            chosen = set(self._options.assigned)
            if must_exist and not chosen <= found:
                first = min(chosen - found)
                raise UnknownTopicOrPartitionError(
                    f"option assign: topic {first.topic} has no partition {first.partition}"
                )
            return chosen & found
        return found

    def _of(self, topics: Collection[str]) -> set[TopicPartition]:
        return {
            TopicPartition(topic, partition)
            for topic in topics
            for partition in self._consumer.partitions_for_topic(topic)
        }

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs start."""
        return self._consumer.beginning_offsets(sorted(partitions)) if partitions else {}

    def latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs end; with ``kafka.isolation.level=read_committed``, as far as stable."""
        return self._consumer.end_offsets(sorted(partitions)) if partitions else {}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed, where it has."""
        found: dict[TopicPartition, int] = {}
        for tp in sorted(partitions):
            offset = self._consumer.committed(tp)
            if isinstance(offset, int):
                found[tp] = offset
        return found

    def resolve(
        self, position: int | Offsets, partitions: Collection[TopicPartition], option: str
    ) -> dict[TopicPartition, int]:
        """The offsets that ``position`` stands for; InvalidOptionError unless it covers them all.

        A committed offset that is not there is the earliest one.
        """
        if not isinstance(position, int):
            wrong = position.keys() ^ set(partitions)
            if wrong:
                raise InvalidOptionError(
                    f"option {option}: it names {nested(position)}, and to be read are "
                    f"{', '.join(f'{tp.topic}-{tp.partition}' for tp in sorted(partitions))}: "
                    f"{min(wrong).topic}-{min(wrong).partition} is in one of them only"
                )
            asked = dict(position)
        else:
            asked = dict.fromkeys(partitions, position)
        offsets = {tp: offset for tp, offset in asked.items() if offset >= 0}
        group = {tp for tp, offset in asked.items() if offset == COMMITTED}
        offsets |= self.committed(group)
        first = {tp for tp, offset in asked.items() if offset == EARLIEST} | (
            group - offsets.keys()
        )
        offsets |= self.earliest(first)
        offsets |= self.latest({tp for tp, offset in asked.items() if offset == LATEST})
        return offsets

    def ranges(self) -> list[OffsetRange]:
        """What a batch query reads."""
        partitions = self.partitions()
        start = self.resolve(self._options.starting, partitions, "startingOffsets")
        end = self.resolve(self._options.ending, partitions, "endingOffsets")
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        lost: list[OffsetRange] = []
        ranges: list[OffsetRange] = []
        for tp in sorted(partitions):
            wanted = OffsetRange(*tp, start[tp], end[tp])
            if wanted.size < 0:
                if isinstance(self._options.ending, int):
                    # The start lies behind what is there: a deleted and recreated topic, mostly.
                    lost.append(wanted._replace(start=end[tp], end=start[tp]))
                    continue
                raise InvalidOptionError(
                    f"{tp.topic}-{tp.partition}: startingOffsets ({start[tp]}) is behind "
                    f"endingOffsets ({end[tp]})"
                )
            there = wanted._replace(
                start=min(max(wanted.start, earliest[tp]), wanted.end),
                end=max(min(wanted.end, latest[tp]), wanted.start),
            )
            if there.start > wanted.start:
                lost.append(wanted._replace(end=there.start))
            if there.end < wanted.end:
                lost.append(wanted._replace(start=there.end))
            ranges.append(there)
        if lost and self._options.fail_on_data_loss:
            raise DataLossError(
                f"not in the log: {', '.join(map(str, lost))}. They were deleted, or are not "
                "written yet. Option failOnDataLoss=false reads what is there",
                lost,
            )
        return ranges
