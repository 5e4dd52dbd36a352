"""Names of the options, and conversion of their text. ValueError names the fault of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kohort import TopicPartition
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    Offsets,
    parse_offsets,
    parse_partitions,
    short,
)

PREFIX = "kafka."

NAMES = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "allowOtherTopics",
    "includeHeaders",
    "includeErrors",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "executorCores",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "rebalanceWait",
    "rebalanceListener",
    "groupOffsetReset",
    "commitOnly",
    "pushdown",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)

BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", "pushdown")
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "allowOtherTopics",
    "commitOnly",
)
MEMBER_ONLY = ("rebalanceWait", "rebalanceListener", "groupOffsetReset")
"""Options for one kind of query only: batches, streams, and streams in a group."""

_STARTS = "set option startingOffsets instead, which applies without a checkpoint"
_BYTES = "key and value are bytes. Decode them with Spark's functions or .schema(...)"

REJECTED = {
    "auto.offset.reset": _STARTS,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "enable.auto.commit": "offsets are committed after Spark has finished a batch, not by time",
    "interceptor.classes": "an interceptor needs a JVM, and this source has none",
}
"""Options of the consumer that would break a guarantee of the source, with the reason."""


def check_names(given: Mapping[str, str]) -> None:
    """Raise UnknownOptionError for an unknown name. Names are in lower case."""
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name in known:
            continue
        if name in ("path", "paths"):
            raise UnknownOptionError("load() takes no path. Name the topic in option subscribe")
        if name == "topic":
            raise UnknownOptionError(
                "option topic is for writing, and kohort does not write. Name the topics to read "
                'in option subscribe, or write with Spark\'s own .format("kafka")'
            )
        raise UnknownOptionError(f"no option is called {name!r}: {_hint(name, known)}")


def _hint(name: str, known: Mapping[str, str]) -> str:
    import difflib  # needed only for this error

    near = difflib.get_close_matches(name, [*known, "kafka.bootstrap.servers", "kafka.group.id"], 1)
    if near:
        return f"did you mean {known.get(near[0], near[0])}?"
    if "." in name:
        return f"options of the consumer have the prefix kafka., as in {PREFIX}{name}"
    return f"the options are {', '.join(NAMES)}, and the consumer's with the prefix {PREFIX}"


def check_kind(given: Mapping[str, str], streaming: bool | None, member: bool) -> None:
    """Raise InvalidOptionError for options of another kind of query."""
    for name in BATCH_ONLY:
        if streaming is True and name.lower() in given:
            instead = (
                "Spark hands no filters to a stream"
                if name == "pushdown"
                else "A stream ends with .trigger(availableNow=True)"
            )
            raise InvalidOptionError(f"option {name} is for batches. {instead}")
    for name in (*STREAM_ONLY, *MEMBER_ONLY):
        if streaming is False and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for streams. A batch ends at endingOffsets and joins no group"
            )
    for name in MEMBER_ONLY:
        if not member and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for members of a group. Set kafka.group.id, and subscribe or "
                "subscribePattern, without commitOnly"
            )


def check_properties(properties: Mapping[str, str]) -> None:
    """Check options of the consumer, without prefix.

    Raise UnsupportedOptionError, UnknownOptionError or InvalidOptionError.
    """
    for name, why in REJECTED.items():
        if name in properties:
            raise UnsupportedOptionError(f"option {PREFIX}{name} cannot be set: {why}")
    if "sasl_oauth_token_provider" in properties:
        raise UnknownOptionError(
            f"option {PREFIX}sasl_oauth_token_provider is an object in a program. Here set "
            f"{PREFIX}sasl.oauth.token.provider=package.module:Name"
        )
    if properties.get("on.error", "").strip().lower() == "pause":
        raise UnsupportedOptionError(
            f"option {PREFIX}on.error cannot be pause: a task needs its whole range and cannot be "
            "resumed. Set raise, which fails the task, or skip, which leaves bad records out"
        )
    if not properties.get("bootstrap.servers", "").strip():
        raise InvalidOptionError(
            "option kafka.bootstrap.servers is missing. Set the addresses of brokers, as in "
            "'host:port,host:port'"
        )
    if properties.get("group.id", "-").strip() == "":
        raise InvalidOptionError("option kafka.group.id is empty. Set a name or remove it")


_POSITIONS = {"earliest": EARLIEST, "latest": LATEST, "committed": COMMITTED}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9}) ?([a-z]*)", re.ASCII)
_FLAGS = re.compile(r"\A(?:\(\?[aiLmsux]+\))*")
_FLAGS_AND_SPACE = re.compile(r"\A(?:\(\?[aiLmsux]+\)|\s|#.*)*")
_LISTENER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def topics(text: str) -> tuple[str, ...]:
    """Parse names separated by commas. Empty names are left out, as in Spark's own source."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("set topic names, separated by commas")
    return tuple(dict.fromkeys(names))


def pattern(text: str) -> str:
    """Check a regular expression in Python's syntax."""
    if not text:
        raise ValueError("set a regular expression")
    try:
        anchored(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def anchored(text: str) -> re.Pattern[str]:
    """Return the expression whose ``match()`` matches what ``fullmatch()`` of ``text`` matches.

    Raise re.error if ``text`` is no expression.
    """
    flags = re.compile(text).flags
    verbose = bool(flags & re.VERBOSE)
    # Global flags are allowed only at the start, so they cannot go into the group.
    body = (_FLAGS_AND_SPACE if verbose else _FLAGS).sub("", text, count=1)
    end = "\n" if verbose else ""  # ends a comment, which would contain the closing bracket
    return re.compile(rf"(?:{body}{end})\Z", flags)


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"topic": [0, 1]}``."""
    return tuple(parse_partitions(text))


def position(text: str) -> int | Offsets:
    """Parse earliest, latest, committed, or offsets as JSON."""
    word = _POSITIONS.get(text.lower())
    if word is not None:
        return word
    try:
        return parse_offsets(text)
    except OffsetFormatError as error:
        if text.startswith("{"):
            raise
        raise ValueError(
            f"{short(text)} is not earliest, latest, committed, or JSON such as "
            '{"topic":{"0":23}}'
        ) from error


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{short(text)} is neither true nor false")
    return text.lower() == "true"


def count(text: str) -> int:
    """Parse a whole number above 0."""
    return _whole(text, 1, "a number above 0")


def number(text: str) -> int:
    """Parse a whole number from 0."""
    return _whole(text, 0, "a number")


def milliseconds(text: str) -> int:
    """Parse a point in time, in milliseconds since 1970 UTC."""
    return _whole(text, 0, "a time in milliseconds since 1970 UTC")


def _whole(text: str, minimum: int, what: str) -> int:
    # The length is checked first, because int() is slow for long texts.
    if text.isascii() and text.isdigit() and len(text) < 20 and minimum <= int(text) <= MAX_OFFSET:
        return int(text)
    raise ValueError(f"{short(text)} is not {what}")


def seconds(text: str) -> float:
    """Parse a duration in Spark's form: ``15m``, ``10s``. The default unit is milliseconds."""
    found = _DURATION.fullmatch(text.lower())
    unit = (found[2] or "ms") if found else ""
    if found is None or unit not in _SECONDS:
        raise ValueError(f"{short(text)} is not a duration such as 500ms, 10s, 15m, 1h or 2d")
    return int(found[1]) * _SECONDS[unit]


def listener(text: str) -> str:
    """Check the form ``package.module:Name`` of a class to import."""
    if not _LISTENER.fullmatch(text):
        raise ValueError(f"{short(text)} is not of the form package.module:Name")
    return text


def one_of(text: str, *words: str) -> str:
    """Parse one of some words, in any case."""
    if text.lower() not in words:
        raise ValueError(f"{short(text)} is not {' or '.join(words)}")
    return text.lower()
