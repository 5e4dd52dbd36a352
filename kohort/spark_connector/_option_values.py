"""Conversion of the text of an option to its value. ValueError names the fault."""

from __future__ import annotations

import re

from kohort import TopicPartition
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
