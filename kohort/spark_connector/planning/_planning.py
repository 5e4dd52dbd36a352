"""Lookup of partitions and of the offsets that options stand for, on the driver."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import (
    InvalidOptionError,
    KafkaError,
    OffsetsTimeoutError,
    UnknownTopicOrPartitionError,
)
from kohort.logs import error_text, get_logger
from kohort.spark_connector._errors import DataLossError
from kohort.spark_connector._offsets import (
    ALL_PARTITIONS,
    COMMITTED,
    EARLIEST,
    LATEST,
    Offsets,
    nested,
    short,
    with_all_partitions,
)
from kohort.spark_connector._ranges import OffsetRange, SkippedData
from kohort.spark_connector.options._options import SourceOptions
from kohort.spark_connector.planning._log_bounds import positions_within_log

logger = get_logger("kohort.spark_connector")

T = TypeVar("T")


class PlannedRanges(NamedTuple):
    """Ranges that a batch query reads, and those that it leaves out."""

    ranges: list[OffsetRange]
    skipped: list[SkippedData]


class OffsetPlanner:
    """Lookups with a given consumer. All methods do I/O."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        options: SourceOptions,
        sleep: Callable[[float], None] = time.sleep,
        timeout_ms: float | None = None,
    ) -> None:
        self._consumer = consumer
        self._options = options
        self._sleep = sleep
        self._timeout_ms = timeout_ms

    def partitions(self, *, must_exist: bool = True) -> set[TopicPartition]:
        """Return the partitions to read.

        Raise UnknownTopicOrPartitionError for names that do not exist. Without ``must_exist`` they
        are left out.
        """
        names = self._consumer.topics()
        if self._options.pattern is not None:
            pattern = re.compile(self._options.pattern)
            return self._partitions_of({name for name in names if pattern.fullmatch(name)})
        if self._options.topics:
            wanted = set(self._options.topics)
        else:
            wanted = {tp.topic for tp in self._options.assigned}
        missing = wanted - names
        if missing and must_exist:
            raise UnknownTopicOrPartitionError(
                f"no topic is called {', '.join(sorted(missing))}. Create it before the query "
                "starts, or set option subscribePattern, which also matches topics created later"
            )
        found = self._partitions_of(wanted & names)
        if self._options.assigned:
            chosen = set(self._options.assigned)
            if must_exist and not chosen <= found:
                first = min(chosen - found)
                raise UnknownTopicOrPartitionError(
                    f"option assign: topic {first.topic} has no partition {first.partition}"
                )
            return chosen & found
        return found

    def _partitions_of(self, topics: Collection[str]) -> set[TopicPartition]:
        return {
            TopicPartition(topic, partition)
            for topic in topics
            for partition in self._consumer.partitions_for_topic(topic)
        }

    def earliest(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return self._look_up(self._consumer.beginning_offsets, partitions, timeout_ms)

    def latest(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the end offsets, up to the last stable offset with read_committed."""
        return self._look_up(self._consumer.end_offsets, partitions, timeout_ms)

    def _look_up(
        self,
        look_up: Callable[[list[TopicPartition], float | None], dict[TopicPartition, int]],
        partitions: Collection[TopicPartition],
        timeout_ms: float | None,
    ) -> dict[TopicPartition, int]:
        chosen = sorted(partitions)
        timeout = self._timeout_ms if timeout_ms is None else timeout_ms
        return self._with_retries(lambda: look_up(chosen, timeout)) if chosen else {}

    def ids(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[str, str]:
        """Return the ids of the partitions' topics that have one."""
        topics = {tp.topic for tp in partitions}
        if not topics:
            return {}
        found = self._with_retries(lambda: self._consumer.topic_ids(topics, timeout_ms))
        return {topic: str(each) for topic, each in found.items()}

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets. Partitions without one are left out."""
        chosen = sorted(partitions)
        if not chosen:
            return {}
        found = self._with_retries(lambda: self._consumer.committed(chosen))
        return {tp: at for tp, at in found.items() if isinstance(at, int)}

    def starts(
        self,
        partitions: Collection[TopicPartition],
        among: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the offsets at which reading starts by the options.

        Offsets and times as JSON have to name exactly the partitions ``among``, by default
        ``partitions``. Otherwise raise InvalidOptionError. The earliest offset replaces a missing
        committed offset.
        """
        options, named = self._options, set(partitions if among is None else among)
        if options.starting_timestamp is not None:
            times = dict.fromkeys(partitions, options.starting_timestamp)
            return self._offsets_at(times, "startingTimestamp", options.strategy)
        if options.starting_by_timestamp is not None:
            name = "startingOffsetsByTimestamp"
            times = _chosen(options.starting_by_timestamp, partitions, named, name)
            return self._offsets_at(times, name, options.strategy)
        if isinstance(options.starting, int):
            return self.resolve(dict.fromkeys(partitions, options.starting))
        return self.resolve(_chosen(options.starting, partitions, named, "startingOffsets"))

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets at which a batch ends by the options.

        A time after all records stands for the latest offset.
        """
        options, named = self._options, set(partitions)
        if options.ending_timestamp is not None:
            times = dict.fromkeys(partitions, options.ending_timestamp)
            return self._offsets_at(times, "endingTimestamp", "latest")
        if options.ending_by_timestamp is not None:
            name = "endingOffsetsByTimestamp"
            return self._offsets_at(
                _chosen(options.ending_by_timestamp, partitions, named, name), name, "latest"
            )
        if isinstance(options.ending, int):
            return self.resolve(dict.fromkeys(partitions, options.ending))
        return self.resolve(_chosen(options.ending, partitions, named, "endingOffsets"))

    def resolve(self, wanted: Offsets) -> dict[TopicPartition, int]:
        """Replace EARLIEST, LATEST and COMMITTED by offsets. Other values stay."""
        offsets = {tp: offset for tp, offset in wanted.items() if offset >= 0}
        group = {tp for tp, offset in wanted.items() if offset == COMMITTED}
        offsets |= self.committed(group)
        first = {tp for tp, offset in wanted.items() if offset == EARLIEST} | (
            group - offsets.keys()
        )
        offsets |= self.earliest(first)
        offsets |= self.latest({tp for tp, offset in wanted.items() if offset == LATEST})
        return offsets

    def _offsets_at(
        self, times: Mapping[TopicPartition, int], option: str, strategy: str
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after the times. ``strategy`` applies if there is none."""
        if not times:
            return {}
        found = self.first_at(times)
        late = [tp for tp in sorted(times) if found[tp] is None]
        if late and strategy == "error":
            raise InvalidOptionError(
                f"option {option}: {late[0].topic}-{late[0].partition} has no record at or after "
                f"{times[late[0]]}. Option startingOffsetsByTimestampStrategy=latest starts after "
                "the last record there"
            )
        return {tp: at for tp, at in found.items() if at is not None} | self.latest(late)

    def first_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offsets at or after the times, None for a partition without one."""
        found = self._with_retries(
            lambda: self._consumer.offsets_for_times(times, self._timeout_ms)
        )
        return {tp: None if (at := found.get(tp)) is None else at.offset for tp in times}

    def _with_retries(self, look_up: Callable[[], T]) -> T:
        """Look something up, with the retries that the options set."""
        for _ in range(self._options.lookup_retries):
            try:
                return look_up()
            except KafkaError as error:
                if not error.retriable:
                    raise
                logger.warning(
                    "a lookup of offsets failed and will be retried: %s", error_text(error)
                )
                self._sleep(self._options.lookup_retry_interval_s)
        return look_up()

    def ranges(self) -> PlannedRanges:
        """Return the ranges that a batch query reads.

        Raise DataLossError for offsets that are not in the log, or log and skip them.
        """
        options, partitions = self._options, self.partitions()
        start, end = self.starts(partitions), self.ends(partitions)
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        lost: list[OffsetRange] = []
        ranges: list[OffsetRange] = []
        behind = {tp for tp in partitions if start[tp] > latest[tp]}
        unstable = behind & positions_within_log(
            self._options.properties, {tp: start[tp] for tp in behind}
        )
        for tp in sorted(partitions):
            wanted = OffsetRange(*tp, start[tp], end[tp])
            if tp in unstable:
                continue
            if wanted.size < 0:
                if self._options.ends_by_time and start[tp] <= latest[tp]:
                    continue  # older records have been read or are not requested
                if self._options.ends_by_time or isinstance(self._options.ending, int):
                    # The start is past the log end, usually because the topic was recreated.
                    log_end = max(end[tp], latest[tp])
                    lost.append(wanted._replace(start=log_end, end=start[tp]))
                    continue
                raise InvalidOptionError(
                    f"{tp.topic}-{tp.partition}: startingOffsets={start[tp]} is after "
                    f"endingOffsets={end[tp]}"
                )
            existing = wanted._replace(
                start=min(max(wanted.start, earliest[tp]), wanted.end),
                end=max(min(wanted.end, latest[tp]), wanted.start),
            )
            if existing.start > wanted.start:
                lost.append(wanted._replace(end=existing.start))
            if existing.end < wanted.end:
                lost.append(wanted._replace(start=existing.end))
            ranges.append(existing)
        if lost:
            cause = (
                f"not in the log: {', '.join(map(str, lost))}. The records were deleted or are not "
                "written yet"
            )
            if options.fail_on_data_loss:
                effect = "Option failOnDataLoss=false reads the existing records"
                raise DataLossError(f"{cause}. {effect}", lost)
            logger.warning("%s. The query continues without them (failOnDataLoss=false)", cause)
        skipped = []
        for each in lost:
            tp = each.topic_partition
            reason = "no longer in the log" if each.start < earliest[tp] else "not in the log"
            skipped.append(SkippedData(tp, each.start, each.end, reason))
        return PlannedRanges(ranges, skipped)


def _chosen(
    given: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    named: Collection[TopicPartition],
    option: str,
) -> dict[TopicPartition, int]:
    """Return the values of partitions in JSON.

    Raise InvalidOptionError unless the JSON names exactly the partitions to read.
    """
    given = with_all_partitions(given, named)
    wrong = given.keys() ^ set(named)
    if wrong:
        one = min(wrong)
        name = one.topic if one.partition == ALL_PARTITIONS else f"{one.topic}-{one.partition}"
        raise InvalidOptionError(
            f"option {option} names {short(nested(given))}, but the query reads "
            f"{short([f'{tp.topic}-{tp.partition}' for tp in sorted(named)])}: "
            f"{name} is in one of them only"
        )
    return {tp: given[tp] for tp in partitions}


PARTITIONS_REFRESH_S = 10.0
"""Seconds between two lookups of the partitions. An event may cause an earlier one."""
RETRY_TIMED_OUT_S = 5.0
"""Seconds between two lookups of partitions that timed out. Each takes the whole timeout."""


class EndLookup:
    """Repeated lookup of the ends of one query.

    ``on_timeout`` is called with the error if some ends did not arrive, because their partitions
    may be deleted.
    """

    def __init__(
        self,
        planner: OffsetPlanner,
        timeout_ms: float,
        clock: Callable[[], float],
        on_timeout: Callable[[OffsetsTimeoutError], None],
    ) -> None:
        self._planner = planner
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._on_timeout = on_timeout
        self._timed_out: frozenset[TopicPartition] = frozenset()
        self._due = float("-inf")

    def look_up(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends that arrived. Raise any KafkaError that is no timeout."""
        chosen = frozenset(partitions)
        timed_out = chosen & self._timed_out
        found = self._request(chosen - timed_out)
        if timed_out and self._clock() >= self._due:
            found |= self._request(timed_out)
        self._timed_out = chosen - found.keys()
        return found

    def _request(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return self._planner.latest(partitions, self._timeout_ms)
        except OffsetsTimeoutError as error:
            self._due = self._clock() + RETRY_TIMED_OUT_S
            self._on_timeout(error)
            return offsets_found(error)


def offsets_found(error: OffsetsTimeoutError) -> dict[TopicPartition, int]:
    """Return the offsets that arrived before the timeout."""
    return {tp: at.offset for tp, at in error.found.items() if at is not None}
