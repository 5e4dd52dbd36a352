"""The names of the options: those there are, those that cannot be set, and what was meant."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError

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
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "rebalanceWait",
    "rebalanceListener",
    "groupOffsetReset",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)

BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
MEMBER_ONLY = ("rebalanceWait", "rebalanceListener", "groupOffsetReset")
"""Options with a meaning for one kind of query only: batches, streams, streams in a group."""

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


def check_names(given: Mapping[str, str]) -> None:
    """UnknownOptionError for a name in lower case that there is not."""
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name in known:
            continue
        if name in ("path", "paths"):
            raise UnknownOptionError("load() takes no path: name the topic by option subscribe")
        raise UnknownOptionError(f"no option is called {name!r}: {_hint(name, known)}")


def _hint(name: str, known: Mapping[str, str]) -> str:
    import difflib  # for this error alone

    near = difflib.get_close_matches(name, [*known, "kafka.bootstrap.servers", "kafka.group.id"], 1)
    if near:
        return f"did you mean {known.get(near[0], near[0])}?"
    if "." in name:
        return f"options of the consumer carry a prefix, as in {PREFIX}{name}"
    return f"there are {', '.join(NAMES)}, and those of the consumer with the prefix {PREFIX}"


def check_kind(given: Mapping[str, str], streaming: bool | None, member: bool) -> None:
    """InvalidOptionError for options of another kind of query than this one."""
    for name in BATCH_ONLY:
        if streaming is True and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for batches: a stream ends with .trigger(availableNow=True)"
            )
    for name in (*STREAM_ONLY, *MEMBER_ONLY):
        if streaming is False and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for streams: endingOffsets ends a batch, which joins no group"
            )
    for name in MEMBER_ONLY:
        if not member and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for members of a group: give kafka.group.id, and subscribe or "
                "subscribePattern"
            )


def check_properties(properties: Mapping[str, str]) -> None:
    """UnsupportedOptionError or InvalidOptionError for options of the consumer, names bare."""
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
    if properties.get("group.id", "-").strip() == "":
        raise InvalidOptionError("option kafka.group.id is empty")
