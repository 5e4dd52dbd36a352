"""Types of ``auto_offset_reset``, which is a word or a duration (KIP-1106)."""

from __future__ import annotations

import re
from typing import Any

from kohort.config._option_types import OneOf, literal

AS_THE_OTHERS = "auto_offset_reset"
"""Value that treats new partitions as all others, which is Kafka's default."""
_BY_DURATION = "by_duration:"
_ISO = (
    r"([+-]?)P(?:([+-]?\d{1,9})D)?"
    r"(?:T(?=.)(?:([+-]?\d{1,12})H)?(?:([+-]?\d{1,12})M)?(?:([+-]?\d{1,12})(?:[.,](\d{0,9}))?S)?)?"
)
"""Durations of java.time.Duration.parse(), which has no months or years."""


class Reset(OneOf):
    """One of the words of Java or other clients, or a duration in Java's notation.

    For new partitions it may also be the name of the general option, or None.
    """

    def __init__(self, *, is_for_new: bool = False) -> None:
        super().__init__(
            "earliest",
            "latest",
            "none",
            aliases={
                "smallest": "earliest",
                "beginning": "earliest",
                "largest": "latest",
                "end": "latest",
                "error": "none",
            },
        )
        self.expected += ', or "by_duration:PT1H30M" (ISO 8601 with days, hours, minutes, seconds)'
        self.annotation = f"{literal(*self.words)} | str"
        self._is_for_new = is_for_new
        if is_for_new:
            self.expected += ', or "auto_offset_reset", or None'
            self.annotation = f"{literal(*self.words, AS_THE_OTHERS)} | str | None"

    def check(self, value: Any) -> Any:
        if self._is_for_new:
            if value is None:
                return None
            if isinstance(value, str) and value.lower().replace(".", "_") == AS_THE_OTHERS:
                return AS_THE_OTHERS
        if isinstance(value, str) and value.lower().startswith(_BY_DURATION):
            text = value[len(_BY_DURATION) :].upper()
            _milliseconds(text)
            return _BY_DURATION + text
        return super().check(value)


def reset_duration_ms(policy: str) -> int | None:
    """Return the duration in a checked value of auto_offset_reset, or None for a word."""
    return _milliseconds(policy[len(_BY_DURATION) :]) if policy.startswith(_BY_DURATION) else None


def _milliseconds(text: str) -> int:
    match = re.fullmatch(_ISO, text, re.ASCII)
    if match is None or not any(part is not None for part in match.groups()[1:]):
        raise ValueError(f"{text!r} is no duration such as PT1H or P7D")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total = 86_400_000 * int(days or 0) + 3_600_000 * int(hours or 0) + 60_000 * int(minutes or 0)
    part = int((fraction or "").ljust(3, "0")[:3])
    total += 1000 * int(seconds or 0) + (-part if (seconds or "").startswith("-") else part)
    total = -total if sign == "-" else total
    if total < 0:
        raise ValueError("a duration back in time cannot be negative")
    return total
