"""Section of the options of fetching, and the type of ``auto_offset_reset`` (KIP-1106)."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from kohort.config._client import RequestOptions
from kohort.config.options._option import invalid, option, section
from kohort.config.options._option_types import INT32_MAX, Boolean, Integer, OneOf, OneOfOr, literal

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


@section
class FetchConfig(RequestOptions):
    """Options of fetching and of the records that poll() returns."""

    fetch_min_bytes: int = field(
        default=1,
        metadata=option(
            Integer(0), "A broker responds to a fetch when it has this many bytes...", unit="bytes"
        ),
    )
    fetch_max_wait_ms: int | None = field(
        default=None,
        metadata=option(
            Integer(0, special={None: None}, expected="an int of at least 0, or None"),
            "...or when this time has passed. Without a value it is 500 ms, and doubles up to 10 s "
            "while no records arrive. It stays 500 ms if fetch_min_bytes is above 1.",
            unit="ms",
            also=("fetch.wait.max.ms",),
            shown_default="500 to 10,000",
        ),
    )
    fetch_pace_ms: int = field(
        default=12,
        metadata=option(
            Integer(0),
            "Longest interval between two fetches of a broker while few records arrive at a time. "
            "It saves CPU, and delays records by half of it on average. A record after a silence "
            "is not delayed. 0 fetches at once.",
            unit="ms",
            properties=(),
        ),
    )
    fetch_max_bytes: int = field(
        default=52_428_800,
        metadata=option(
            Integer(0),
            "Most bytes of one response. Brokers still send a single larger batch. The first "
            "response has at most 512 KiB, and later ones what the line delivers in 2 s. Without a "
            "value it is 4 MiB from a broker that responds within 40 ms, and 16 MiB within 100 ms. "
            "A distant broker has twice what its line delivers in a round trip.",
            unit="bytes",
        ),
    )
    max_partition_fetch_bytes: int = field(
        default=4_194_304,
        metadata=option(
            Integer(0),
            "Most bytes of one partition in one response. Brokers still send a single larger "
            "batch. Without a value it is 1 MiB at first. From a broker that responds within 100 "
            "ms it is 4 MiB, and 16 MiB for all partitions together. It may be more from a distant "
            "broker.",
            unit="bytes",
            also=("fetch.message.max.bytes",),
        ),
    )
    buffer_memory: int = field(
        default=67_108_864,
        metadata=option(
            Integer(1),
            "Most bytes of responses that are buffered across all partitions until poll() returns "
            "their records. At least fetch_max_bytes.",
            unit="bytes",
        ),
    )
    fetch_order: str = field(
        default="fair",
        metadata=option(
            OneOf("fair", "lag"),
            "`fair` returns records of each partition in turn. `lag` returns those of the "
            "partition with the largest lag every other time.",
        ),
    )
    enable_incremental_fetch_sessions: bool = field(
        default=True,
        metadata=option(
            Boolean(),
            "Let brokers keep the fetched partitions, so that only changes are sent (KIP-227).",
            properties=(),
        ),
    )
    max_poll_records: int = field(
        default=500,
        metadata=option(
            Integer(1, special={None: INT32_MAX}, expected="an int of at least 1, or None"),
            "Most records that one poll() returns. None: no limit.",
        ),
    )
    auto_offset_reset: str = field(
        default="latest",
        metadata=option(
            Reset(),
            "Start position without a committed offset, or if that is out of range. `none` raises. "
            "`by_duration` starts at the first record that is not older.",
        ),
    )
    auto_offset_reset_new_partitions: str | None = field(
        default=None,
        metadata=option(
            Reset(is_for_new=True),
            "The same for topics and partitions that appear after the subscription began "
            "(KIP-1327). Kafka's default is the value of auto_offset_reset.",
            shown_default='"earliest"; "none" with auto_offset_reset="none"',
        ),
    )
    isolation_level: str = field(
        default="read_uncommitted",
        metadata=option(
            OneOf("read_uncommitted", "read_committed"),
            "read_committed leaves out aborted transactions and waits for open ones.",
        ),
    )
    check_crcs: bool = field(
        default=True, metadata=option(Boolean(), "Check the CRC of each record batch.")
    )
    decompression_max_bytes: int = field(
        default=67_108_864,
        metadata=option(
            Integer(1),
            "Most bytes that one record batch may decompress to.",
            unit="bytes",
            properties=(),
        ),
    )

    on_error: Any = field(
        default="raise",
        metadata=option(
            OneOfOr("raise", "skip", "pause", function="a function of the error returning one"),
            "Reaction to a corrupt batch or a deserializer that raises: see docs/poison.md.",
        ),
    )

    def _check_together(self) -> None:
        RequestOptions._check_together(self)
        if self.fetch_min_bytes > self.fetch_max_bytes:
            raise invalid(
                "fetch_min_bytes",
                self.fetch_min_bytes,
                f"at most fetch_max_bytes ({self.fetch_max_bytes})",
            )
        if self.buffer_memory < self.fetch_max_bytes:
            raise invalid(
                "buffer_memory",
                self.buffer_memory,
                f"at least fetch_max_bytes ({self.fetch_max_bytes})",
            )
        wait = self.fetch_max_wait_ms
        if wait is not None and wait >= self.request_timeout_ms:
            raise invalid(
                "fetch_max_wait_ms",
                wait,
                f"less than request_timeout_ms ({self.request_timeout_ms})",
            )
