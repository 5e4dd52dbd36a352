"""Durations of the config ``share.auto.offset.reset``."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def duration_ms(text: str) -> int:
    """Return the milliseconds of a value such as ``by_duration:PT1H``, which was checked."""
    found = _DURATION.fullmatch(text)
    parts = found.groupdict() if found else {}
    return int(sum(float(parts.get(name) or 0) * unit for name, unit in _UNITS_MS.items()))
