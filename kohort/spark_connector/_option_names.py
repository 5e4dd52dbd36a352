"""Names of the options, with suggestions for unknown ones and reasons for rejected ones."""

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
            raise InvalidOptionError(
                f"option {name} is for batches. A stream ends with .trigger(availableNow=True)"
            )
    for name in (*STREAM_ONLY, *MEMBER_ONLY):
        if streaming is False and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for streams. A batch ends at endingOffsets and joins no group"
            )
    for name in MEMBER_ONLY:
        if not member and name.lower() in given:
            raise InvalidOptionError(
                f"option {name} is for members of a group. Set kafka.group.id, and subscribe or "
                "subscribePattern"
            )


def check_properties(properties: Mapping[str, str]) -> None:
    """Check options of the consumer, without prefix.

    Raise UnsupportedOptionError or InvalidOptionError.
    """
    for name, why in REJECTED.items():
        if name in properties:
            raise UnsupportedOptionError(f"option {PREFIX}{name} cannot be set: {why}")
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
