"""Bounds of a range: the offsets of both ends of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from kohort.types import NamedTuple

if TYPE_CHECKING:
    pass

Place: TypeAlias = str | int | datetime | timedelta | Mapping[int, int]
"""An end of a range. A mapping has an offset for each partition."""


class Bounds(NamedTuple):
    """Offsets to read of a partition."""

    start: int
    end: int
    """Offset after the last one."""


def moment_ms(place: str | datetime | timedelta, now: float) -> int | None:
    """Return a time in milliseconds since the epoch, or None for ``"earliest"`` and ``"latest"``.

    Raise ValueError for a place that is no time.
    """
    from kohort.admin._plan import read_target

    target = read_target(place, now)
    if target.kind not in ("time", "earliest", "latest"):
        raise ValueError(f"{place!r} is no time. Use one such as -2h, or a time with a zone")
    return target.value if target.kind == "time" else None
