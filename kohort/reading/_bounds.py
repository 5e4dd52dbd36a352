"""Bounds of a range: the offsets of both ends of each partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from kohort.errors import UnknownTopicOrPartitionError
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.admin import KafkaAdminClient

Place: TypeAlias = str | int | datetime | timedelta | Mapping[int, int]
"""An end of a range. A mapping has an offset for each partition."""


class Bounds(NamedTuple):
    """Offsets to read of a partition."""

    start: int
    end: int
    """Offset after the last one."""


def find_bounds(
    admin: KafkaAdminClient,
    topic: str,
    since: Place = "earliest",
    until: Place = "latest",
    partitions: Iterable[int] | None = None,
    *,
    committed: bool = False,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of each partition. Those of an empty range have equal ends.

    With ``committed``, no range has offsets from the first one of an open transaction on. Raise
    ValueError for a place, and UnknownTopicOrPartitionError.
    """
    starts = _offsets(admin, topic, since, "earliest", timeout_ms)
    ends = _offsets(admin, topic, until, "latest", timeout_ms)
    if committed:
        stable = admin.list_partition_offsets(
            dict.fromkeys(ends, _LATEST), isolation_level="read_committed", timeout_ms=timeout_ms
        ).raise_errors()
        ends = {
            tp: end if (last := stable[tp]) is None else min(end, last.offset)
            for tp, end in ends.items()
        }
    known = {tp.partition for tp in ends}
    wanted = known if partitions is None else set(partitions)
    given = {number for place in (since, until) if isinstance(place, Mapping) for number in place}
    if unknown := (wanted | given) - known:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {min(unknown)}")
    return {
        tp: Bounds(min(starts[tp], end), end)
        for tp, end in sorted(ends.items())
        if tp.partition in wanted
    }


def moment_ms(place: str | datetime | timedelta, now: float) -> int | None:
    """Return a time in milliseconds since the epoch, or None for ``"earliest"`` and ``"latest"``.

    Raise ValueError for a place that is no time.
    """
    from kohort.admin._plan import read_target

    target = read_target(place, now)
    if target.kind not in ("time", "earliest", "latest"):
        raise ValueError(f"{place!r} is no time. Use one such as -2h, or a time with a zone")
    return target.value if target.kind == "time" else None


_LATEST = -1
"""OffsetSpec.LATEST, of which the import would load the admin clients."""


def _offsets(
    admin: KafkaAdminClient, topic: str, place: Place, default: str, timeout_ms: float | None
) -> dict[TopicPartition, int]:
    """Return the offset at a place for each partition. The log of the partition limits it."""
    if isinstance(place, str) and re.fullmatch(r"[+-]\d+", place):
        raise ValueError(
            f"{place!r} is a shift, which a range cannot have: give an offset or a time"
        )
    if not isinstance(place, Mapping):
        return admin.find_offsets(place, topic, timeout_ms)
    found = admin.find_offsets(default, topic, timeout_ms)
    return {tp: place.get(tp.partition, at) for tp, at in found.items()}
