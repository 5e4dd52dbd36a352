"""From the text of an option to its value; ValueError says what is wrong with it."""

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
    """Names with commas between; empty ones are left out, as in Spark's own source."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError("names of topics are needed, with commas between them")
    return tuple(dict.fromkeys(names))


def pattern(text: str) -> str:
    """A regular expression of Python's."""
    if not text:
        raise ValueError("a regular expression is needed")
    try:
        anchored(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def anchored(text: str) -> re.Pattern[str]:
    """The expression for ``match()`` that matches what ``text`` matches by ``fullmatch()``.

    re.error when it is none.
    """
    flags = re.compile(text).flags
    verbose = bool(flags & re.VERBOSE)
    # Flags for all of it may only stand first, so they cannot go into the brackets.
    body = (_FLAGS_AND_SPACE if verbose else _FLAGS).sub("", text, count=1)
    end = "\n" if verbose else ""  # of a comment, else the bracket were in it
    return re.compile(rf"(?:{body}{end})\Z", flags)


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}``."""
    return tuple(parse_partitions(text))


def position(text: str) -> int | Offsets:
    """A word, or offsets as JSON."""
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
    """``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{short(text)} is neither true nor false")
    return text.lower() == "true"


def count(text: str) -> int:
    """A whole number above 0."""
    return _whole(text, 1, "a number above 0")


def number(text: str) -> int:
    """A whole number."""
    return _whole(text, 0, "a number")


def milliseconds(text: str) -> int:
    """A point in time, in milliseconds since 1970 UTC."""
    return _whole(text, 0, "a time in milliseconds since 1970 UTC")


def _whole(text: str, least: int, what: str) -> int:
    # A text of any length is not converted: int() takes its time for long ones.
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= MAX_OFFSET:
        return int(text)
    raise ValueError(f"{short(text)} is not {what}")


def seconds(text: str) -> float:
    """A duration as Spark writes it: ``15m``, ``10s``; a number alone is in milliseconds."""
    found = _DURATION.fullmatch(text.lower())
    unit = (found[2] or "ms") if found else ""
    if found is None or unit not in _SECONDS:
        raise ValueError(f"{short(text)} is not a duration such as 500ms, 10s, 15m, 1h or 2d")
    return int(found[1]) * _SECONDS[unit]


def listener(text: str) -> str:
    """Where a class is to be imported from: ``package.module:Name``."""
    if not _LISTENER.fullmatch(text):
        raise ValueError(f"{short(text)} is not of the form package.module:Name")
    return text


def one_of(text: str, *words: str) -> str:
    """Any of these words, in any case."""
    if text.lower() not in words:
        raise ValueError(f"{short(text)} is not {' or '.join(words)}")
    return text.lower()
