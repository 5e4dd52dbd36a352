"""Checks and conversions of the arguments of public methods."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

from kohort.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition

MAX_TIMEOUT_MS = 1e12
"""Limit of every timeout, about 30 years. Event loops cannot add larger floats to their clocks."""
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_TEXT_BYTES = 32_767
"""Limit of a string in the protocol."""

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def topic_partition(value: object) -> TopicPartition:
    """Return a TopicPartition from any (str, int) tuple, such as another client's class."""
    match value:
        # int comes first, because the check of a protocol such as SupportsIndex takes 20 to 50 us.
        case tuple((str(topic), (int() | SupportsIndex()) as partition)) if not isinstance(
            partition, bool
        ):
            return TopicPartition(
                text(topic, "the topic"), integer(partition, "the partition", 0, INT32_MAX)
            )
    raise TypeError(f"expected a TopicPartition, not {value!r}")


def integer(value: object, what: str, minimum: int, maximum: int = INT64_MAX) -> int:
    """Return an int, also of a NumPy integer. Raise an error that names it ``what``.

    A value that the protocol cannot encode would fail later, in a request with other data.
    """
    if isinstance(value, bool) or not isinstance(value, (int, SupportsIndex)):
        raise TypeError(f"{what} must be an int, not {value!r}")
    try:
        number = operator.index(value)
    except TypeError:  # a NumPy bool, for example
        raise TypeError(f"{what} must be an int, not {value!r}") from None
    if number < minimum:
        raise ValueError(f"{what} must be at least {minimum}")
    if number > maximum:
        raise ValueError(f"{what} must be at most {maximum}")
    return number


def text(value: str, what: str) -> str:
    """Return a text that the protocol can encode. Raise ValueError that names it ``what``."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} must be valid Unicode, without lone surrogates") from None
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"{what} must have at most {MAX_TEXT_BYTES} bytes, not {size}")
    return value


def owner(value: object) -> str | None:
    """Return the name of an owner of pauses, or None."""
    if value is not None and not (isinstance(value, str) and value):
        raise TypeError(f"owner must be a str that is not empty, or None, not {value!r}")
    return value


def one_or_more(value: object) -> tuple[bool, list[TopicPartition]]:
    """Return True and a list of one for a single partition, or False and all of a collection."""
    match value:
        case tuple((str(), int() | SupportsIndex())):
            return True, [topic_partition(value)]
        case Iterable():
            return False, topic_partitions(value)
    raise TypeError(f"expected a TopicPartition or a list of them, not {value!r}")


def topic_partitions(values: Iterable[object]) -> list[TopicPartition]:
    """Return a list of TopicPartition. Raise TypeError for a single one."""
    if isinstance(values, (str, TopicPartition)):
        raise TypeError(f"expected a list of TopicPartition, not {values!r}")
    return [topic_partition(value) for value in values]


def topic_names(topics: Iterable[object]) -> list[str]:
    """Return the names, checked by Kafka's rules.

    A name has 1 to 249 of the characters ``A-Z a-z 0-9 . _ -`` and is not ``.`` or ``..``.
    """
    if isinstance(topics, str):
        raise TypeError(f"expected a list of topic names, not one string: [{topics!r}]")
    names: list[str] = []
    for topic in topics:
        if not isinstance(topic, str):
            raise TypeError(f"a topic name must be a str, not {topic!r}")
        if topic in (".", "..") or not _LEGAL_TOPIC.fullmatch(topic):
            raise ValueError(
                f"topic name {topic!r} is not legal. Use 1 to 249 characters of A-Z a-z 0-9 . _ -, "
                "but not . or .. alone"
            )
        names.append(topic)
    return names


def broker_pattern(pattern: SubscriptionPattern) -> SubscriptionPattern:
    """Return the pattern. Only the broker knows if it compiles. Raise an error if it is no text."""
    if not isinstance(pattern.pattern, str):
        raise TypeError(f"a SubscriptionPattern needs a str, not {pattern.pattern!r}")
    if not pattern.pattern:
        raise ValueError("a SubscriptionPattern must not be empty")
    text(pattern.pattern, "a SubscriptionPattern")
    return pattern


def topic_pattern(pattern: object) -> re.Pattern[str]:
    """Return the compiled pattern of topic names. Raise ValueError if it does not compile."""
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        return pattern
    if not isinstance(pattern, str):
        raise TypeError(f"pattern must be a str or a compiled pattern of str, not {pattern!r}")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} does not compile: {error}") from error


def offset(value: object, what: str = "offset") -> int:
    """Return the offset. Raise an error that names it ``what`` unless it is an int >= 0."""
    return integer(value, what, 0)


def commit_offsets(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return ``{partition: offset | (offset, metadata[, leader_epoch])}`` in one form."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping of TopicPartition to offset, not {offsets!r}")
    return {topic_partition(tp): _commit_offset(tp, value) for tp, value in offsets.items()}


def _commit_offset(tp: Any, value: object) -> OffsetAndMetadata:
    if not isinstance(value, tuple):
        return OffsetAndMetadata(offset(value, f"the offset of {tp}"))
    if not 1 <= len(value) <= 3:
        raise TypeError(f"the offset of {tp} must be OffsetAndMetadata or an int, not {value!r}")
    metadata = value[1] if len(value) > 1 else ""
    epoch = value[2] if len(value) > 2 else -1
    if metadata is not None and not isinstance(metadata, str):
        raise TypeError(f"the metadata of {tp} must be a str, not {metadata!r}")
    return OffsetAndMetadata(
        offset(value[0], f"the offset of {tp}"),
        text(metadata or "", f"the metadata of {tp}"),
        -1 if epoch is None else integer(epoch, f"the leader epoch of {tp}", -1, INT32_MAX),
    )


def timestamps(values: Mapping[Any, Any]) -> dict[TopicPartition, int]:
    """Return ``{partition: milliseconds since the epoch}``. Raise ValueError for negative ones."""
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a mapping of TopicPartition to timestamp, not {values!r}")
    return {
        topic_partition(tp): offset(_without_fraction(value), f"the timestamp of {tp}")
        for tp, value in values.items()
    }


def _without_fraction(value: object) -> object:
    """Return floats as int, because timestamps are often computed."""
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


def timeout_seconds(timeout_ms: object, default_ms: float | None = None) -> float | None:
    """Return milliseconds as seconds. Return None for None if there is no default."""
    if timeout_ms is None:
        return None if default_ms is None else default_ms / 1000
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float, SupportsIndex)):
        raise TypeError(f"timeout_ms must be a number of milliseconds, not {timeout_ms!r}")
    number = timeout_ms if isinstance(timeout_ms, float) else operator.index(timeout_ms)
    if not number >= 0:
        raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms}")
    return float(min(number, MAX_TIMEOUT_MS)) / 1000


def poll_arguments(
    timeout_ms: object, partitions: Iterable[object] | None
) -> tuple[float, frozenset[TopicPartition] | None]:
    """Return the timeout of a poll in seconds, and the partitions or None for all."""
    timeout = timeout_seconds(timeout_ms, 0)
    assert timeout is not None
    if partitions is None:
        return timeout, None
    return timeout, frozenset(topic_partitions(partitions))


def max_records(value: object, default: int) -> int:
    """Return the checked limit of records, or ``default`` for None."""
    if value is None:
        return default
    return integer(value, "max_records", 1)
