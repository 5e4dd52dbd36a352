"""The options of the source: Spark's names for them, checked before anything is done."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kohort import TopicPartition
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    parse_offsets,
    parse_partitions,
)

T = TypeVar("T")
D = TypeVar("D")

COMMITTED = -3
"""What stands for the group's committed offset; not in JSON."""

PREFIX = "kafka."

_WORDS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}

NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "maxOffsetsPerTrigger",
    "kafkaConsumer.pollTimeoutMs",
)

_BY_TIME = "offsets by time are not built yet: give startingOffsets and endingOffsets"
_TRIGGER = "not built yet: maxOffsetsPerTrigger bounds a batch from above"
_RETRIES = "the consumer repeats what failed by itself: see kafka.request.timeout.ms"

UNSUPPORTED = {
    "startingTimestamp": _BY_TIME,
    "startingOffsetsByTimestamp": _BY_TIME,
    "startingOffsetsByTimestampStrategy": _BY_TIME,
    "endingTimestamp": _BY_TIME,
    "endingOffsetsByTimestamp": _BY_TIME,
    "minOffsetsPerTrigger": _TRIGGER,
    "maxTriggerDelay": _TRIGGER,
    "rebalanceWait": "the source is not a member of the group yet, so nothing is rebalanced",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "groupIdPrefix": "no group is made up: give kafka.group.id to have offsets committed",
}
"""Options of Spark's Kafka source, and of kohort's later versions, that are never ignored."""

_STARTS = "where to start is the option startingOffsets, which a checkpoint overrules"
_BYTES = "key and value are read as bytes: decode them with Spark's functions, or .schema(...)"

REJECTED = {
    "auto.offset.reset": _STARTS,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "enable.auto.commit": "offsets are committed when Spark has finished a batch, never by time",
    "interceptor.classes": "there is no JVM to run an interceptor in",
}
"""Options of the consumer that would break what the source promises, and why."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the user asked for, checked. ``properties`` are the consumer's, without ``kafka.``."""

    properties: Mapping[str, str] = field(repr=False)
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: int | Offsets = EARLIEST
    ending: int | Offsets = LATEST
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_tasks: int | None = None
    max_offsets_per_trigger: int | None = None
    poll_timeout_ms: int = 120_000

    @property
    def group_id(self) -> str | None:
        return self.properties.get("group.id")

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
        """Check Spark's options; ``streaming=None`` when it is not known what they are for.

        Raises UnknownOptionError, InvalidOptionError or UnsupportedOptionError.
        """
        given = {name.lower(): value for name, value in options.items()}
        properties = {
            name.removeprefix(PREFIX): given.pop(name)
            for name in list(given)
            if name.startswith(PREFIX)
        }
        _check_names(given)
        _check_properties(properties)
        _check_kind(given, streaming)
        read = _Reader(given)
        topics, pattern, assigned = _what(read)
        default = LATEST if streaming else EARLIEST
        starting = read("startingOffsets", _position, default)
        ending = read("endingOffsets", _position, LATEST)
        _check_positions(starting, ending, properties)
        return cls(
            properties=properties,
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            starting=starting,
            ending=ending,
            fail_on_data_loss=read("failOnDataLoss", _bool, True),
            include_headers=read("includeHeaders", _bool, False),
            min_partitions=read("minPartitions", _count, None),
            max_records_per_partition=read("maxRecordsPerPartition", _count, None),
            max_tasks=read("maxTasks", _count, None),
            max_offsets_per_trigger=read("maxOffsetsPerTrigger", _count, None),
            poll_timeout_ms=read("kafkaConsumer.pollTimeoutMs", _count, 120_000),
        )


class _Reader:
    """Reads single options, with their names in the errors."""

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


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in NAMES}
    unsupported = {name.lower(): name for name in UNSUPPORTED}
    for name in given:
        if name in known:
            continue
        if name in unsupported:
            proper = unsupported[name]
            raise UnsupportedOptionError(f"option {proper}: {UNSUPPORTED[proper]}")
        if name == "path":
            raise UnknownOptionError("load() takes no path: name the topic by option subscribe")
        raise UnknownOptionError(f"no option is called {name!r}: {_hint(name, known)}")


def _hint(name: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, [*known, "kafka.bootstrap.servers", "kafka.group.id"], 1)
    if near:
        return f"did you mean {known.get(near[0], near[0])}?"
    if "." in name:
        return f"options of the consumer carry a prefix, as in {PREFIX}{name}"
    return f"there are {', '.join(NAMES)}, and those of the consumer with the prefix {PREFIX}"


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, why in REJECTED.items():
        if name in properties:
            raise UnsupportedOptionError(f"option {PREFIX}{name} cannot be set: {why}")
    if properties.get("on.error", "").strip().lower() == "pause":
        raise UnsupportedOptionError(
            f"option {PREFIX}on.error cannot be pause: a task needs its whole range, and nobody "
            "resumes it; raise fails the task, skip leaves out what cannot be read"
        )
    if not properties.get("bootstrap.servers", "").strip():
        raise InvalidOptionError(
            "option kafka.bootstrap.servers is missing: the brokers to begin with, as "
            "'host:port,host:port'"
        )
    if properties.get("group.id") == "":
        raise InvalidOptionError("option kafka.group.id is empty")


def _check_kind(given: Mapping[str, str], streaming: bool | None) -> None:
    if streaming is True and "endingoffsets" in given:
        raise InvalidOptionError(
            "option endingOffsets is for batches: a stream ends with .trigger(availableNow=True)"
        )
    if streaming is False and "maxoffsetspertrigger" in given:
        raise InvalidOptionError(
            "option maxOffsetsPerTrigger is for streams: endingOffsets ends a batch"
        )


def _what(read: _Reader) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    topics = read("subscribe", _topics, ())
    pattern = read("subscribePattern", _pattern, None)
    assigned = read("assign", lambda text: tuple(parse_partitions(text)), ())
    if sum(map(bool, (topics, pattern, assigned))) != 1:
        raise InvalidOptionError(
            "exactly one of the options subscribe, subscribePattern and assign says what to read"
        )
    return topics, pattern, assigned


def _check_positions(
    starting: int | Offsets, ending: int | Offsets, properties: Mapping[str, str]
) -> None:
    if starting == COMMITTED and "group.id" not in properties:
        raise InvalidOptionError("startingOffsets=committed needs the option kafka.group.id")
    if ending in (EARLIEST, COMMITTED):
        raise InvalidOptionError("option endingOffsets is latest, or offsets as JSON")
    if not isinstance(ending, int) and EARLIEST in ending.values():
        raise InvalidOptionError("option endingOffsets: -2 (earliest) can only be a start")


def _topics(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError("names of topics are needed, with commas between them")
    return tuple(dict.fromkeys(names))


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if not text:
        raise ValueError("a regular expression is needed")
    return text


def _position(text: str) -> int | Offsets:
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    try:
        return parse_offsets(text)
    except OffsetFormatError as error:
        if text.startswith("{"):
            raise
        raise ValueError(
            f'{text!r} is not earliest, latest, committed, or JSON such as {{"topic":{{"0":23}}}}'
        ) from error


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) and len(text) < 19):
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)
