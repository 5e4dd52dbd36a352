"""Options of the source, checked before any I/O. They have the names of Spark's own source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from kohort import TopicPartition
from kohort.errors import InvalidOptionError
from kohort.spark_connector._offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Offsets,
    parse_timestamps,
)
from kohort.spark_connector.options import _option_values
from kohort.spark_connector.options._consumer_options import without_effectless
from kohort.spark_connector.options._option_values import (
    PREFIX,
    check_kind,
    check_names,
    check_properties,
)
from kohort.spark_connector.options._tables import check_any, check_not_table

T = TypeVar("T")
D = TypeVar("D")

REBALANCE_WAIT_S = 30.0
MAX_POLL_INTERVAL_MS = 300_000
"""Default of the consumer. A rebalance has to finish within it."""

Strategy = Literal["error", "latest"]
OffsetReset = Literal["checkpoint", "honor", "group"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a query, checked. ``properties`` are the consumer's, without ``kafka.``.

    Of several starts, a time for all partitions has precedence over times per partition, and these
    over ``starting``. The same holds for the ends. OffsetPlanner.starts() and ends() apply it.
    """

    properties: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: int | Offsets = EARLIEST
    starting_timestamp: int | None = None
    starting_by_timestamp: Mapping[TopicPartition, int] | None = None
    strategy: Strategy = "error"
    """Start if no record is at or after a time: an error, or after the last record."""
    ending: int | Offsets = LATEST
    ending_timestamp: int | None = None
    ending_by_timestamp: Mapping[TopicPartition, int] | None = None
    fail_on_data_loss: bool = True
    allow_other_topics: bool = False
    """True if a checkpoint may be used although none of its topics is subscribed now."""
    include_headers: bool = False
    include_errors: bool = False
    """True if the rows have a column for data that is skipped."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_tasks: int | None = None
    executor_cores: int | None = None
    """Cores of all executors together, if the user gives them."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    rebalance_wait_s: float = REBALANCE_WAIT_S
    """Wait of a rebalance for a micro-batch, in seconds. Below max.poll.interval.ms."""
    rebalance_listener: str | None = None
    """``package.module:Name``."""
    group_offset_reset: OffsetReset = "checkpoint"
    """Offset to use where the group's and the checkpoint's differ, for a partition that is gained.

    The higher one, except that a query follows its checkpoint if it committed the group's offset
    itself. With honor a lower offset of another client, and with group any offset of the group.
    """
    pushdown: bool = False
    """True if a batch takes filters from Spark."""
    commit_only: bool = False
    """True if a stream reads all partitions without membership, and commits to its group."""
    lookup_retries: int = 0
    lookup_retry_interval_s: float = 1.0
    poll_timeout_ms: int = 120_000

    @property
    def group_id(self) -> str | None:
        return self.properties.get("group.id")

    @property
    def is_member(self) -> bool:
        """True if a stream is a member of its group, so that other members may own partitions."""
        return self.group_id is not None and not self.assigned and not self.commit_only

    def is_subscribed(self, tp: TopicPartition) -> bool:
        """True if the options name this partition, which may not exist."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, tp.topic) is not None
        return tp in self.assigned if self.assigned else tp.topic in self.topics

    def reads_topic(self, topic: str) -> bool:
        """True if the options name the topic, which may not exist."""
        if self.assigned:
            return any(tp.topic == topic for tp in self.assigned)
        return self.is_subscribed(TopicPartition(topic, 0))

    @property
    def ends_by_time(self) -> bool:
        return self.ending_timestamp is not None or self.ending_by_timestamp is not None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
        """Check Spark's options. ``streaming`` is None if the kind of query is not known.

        Raise UnknownOptionError, InvalidOptionError or UnsupportedOptionError.
        """
        given = {name.lower(): value for name, value in options.items()}
        check_any(given)
        check_not_table(given)
        properties = {
            name.removeprefix(PREFIX): given.pop(name)
            for name in list(given)
            if name.startswith(PREFIX)
        }
        check_names(given)
        check_properties(properties)
        properties = without_effectless(properties)
        read = _OptionReader(given)
        commit_only = read("commitOnly", _option_values.boolean, False)
        is_member = "group.id" in properties and "assign" not in given and not commit_only
        check_kind(given, streaming, is_member)
        topics, pattern, assigned = _topics_to_read(read)
        found = cls(
            properties=properties,
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=read(
                "startingOffsets", _option_values.position, LATEST if streaming else EARLIEST
            ),
            starting_timestamp=read("startingTimestamp", _option_values.milliseconds, None),
            starting_by_timestamp=read("startingOffsetsByTimestamp", parse_timestamps, None),
            strategy=read("startingOffsetsByTimestampStrategy", _strategy, "error"),
            ending=read("endingOffsets", _option_values.position, LATEST),
            ending_timestamp=read("endingTimestamp", _option_values.milliseconds, None),
            ending_by_timestamp=read("endingOffsetsByTimestamp", parse_timestamps, None),
            fail_on_data_loss=read("failOnDataLoss", _option_values.boolean, True),
            allow_other_topics=read("allowOtherTopics", _option_values.boolean, False),
            include_headers=read("includeHeaders", _option_values.boolean, False),
            include_errors=read("includeErrors", _option_values.boolean, False),
            min_partitions=read("minPartitions", _option_values.count, None),
            max_records_per_partition=read("maxRecordsPerPartition", _option_values.count, None),
            max_tasks=read("maxTasks", _option_values.count, None),
            executor_cores=read("executorCores", _option_values.count, None),
            max_offsets_per_trigger=read("maxOffsetsPerTrigger", _option_values.count, None),
            min_offsets_per_trigger=read("minOffsetsPerTrigger", _option_values.count, None),
            max_trigger_delay_s=read("maxTriggerDelay", _option_values.seconds, 900.0),
            rebalance_wait_s=_rebalance_wait(read, properties),
            rebalance_listener=read("rebalanceListener", _option_values.listener, None),
            group_offset_reset=read("groupOffsetReset", _offset_reset, "checkpoint"),
            pushdown=read("pushdown", _option_values.boolean, False),
            commit_only=commit_only,
            lookup_retries=read("fetchOffset.numRetries", _option_values.number, 0),
            lookup_retry_interval_s=read("fetchOffset.retryIntervalMs", _option_values.number, 1000)
            / 1000,
            poll_timeout_ms=read("kafkaConsumer.pollTimeoutMs", _option_values.count, 120_000),
        )
        _check(found)
        return found


class _OptionReader:
    """Reader of single options. Its errors contain the name of the option."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __call__(self, name: str, convert: Callable[[str], T], default: D) -> T | D:
        text = self._given.get(name.lower())
        if text is None:
            return default
        try:
            return convert(text.strip())
        except ValueError as error:
            raise InvalidOptionError(f"option {name}: {error}") from None


def _topics_to_read(
    read: _OptionReader,
) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    topics = read("subscribe", _option_values.topics, ())
    pattern = read("subscribePattern", _option_values.pattern, None)
    assigned = read("assign", _option_values.partitions, ())
    if sum(map(bool, (topics, pattern, assigned))) != 1:
        raise InvalidOptionError(
            "exactly one of the options subscribe, subscribePattern and assign is required"
        )
    return topics, pattern, assigned


def _strategy(text: str) -> Strategy:
    return "latest" if _option_values.one_of(text, "error", "latest") == "latest" else "error"


def _offset_reset(text: str) -> OffsetReset:
    found = _option_values.one_of(text, "checkpoint", "honor", "group")
    return "honor" if found == "honor" else "group" if found == "group" else "checkpoint"


def _rebalance_wait(read: _OptionReader, properties: Mapping[str, str]) -> float:
    text = properties.get("max.poll.interval.ms", "").strip()
    # The consumer rejects a value that is not a number.
    limit = int(text) / 1000 if text.isdecimal() else MAX_POLL_INTERVAL_MS / 1000
    wait = read("rebalanceWait", _option_values.seconds, min(REBALANCE_WAIT_S, limit / 2))
    if wait >= limit:
        raise InvalidOptionError(
            f"option rebalanceWait: {wait:g} s is not below the {limit:g} s of option "
            "kafka.max.poll.interval.ms, after which the member has to leave its group"
        )
    return wait


def _check(options: SourceOptions) -> None:
    """Raise InvalidOptionError for values that exclude each other."""
    if options.starting == COMMITTED and options.group_id is None:
        raise InvalidOptionError("startingOffsets=committed requires option kafka.group.id")
    if options.commit_only and options.group_id is None:
        raise InvalidOptionError("option commitOnly requires option kafka.group.id")
    if options.ending in (EARLIEST, COMMITTED):
        raise InvalidOptionError("option endingOffsets has to be latest or offsets as JSON")
    if not isinstance(options.ending, int) and EARLIEST in options.ending.values():
        raise InvalidOptionError(
            "option endingOffsets: -2 can only be a start, as the earliest offset"
        )
    since, until = options.starting_timestamp, options.ending_timestamp
    if since is not None and until is not None and since > until:
        raise InvalidOptionError(
            f"option startingTimestamp={since} is later than endingTimestamp={until}"
        )
    minimum, maximum = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidOptionError(
            f"option minOffsetsPerTrigger={minimum} is more than maxOffsetsPerTrigger={maximum}"
        )
