"""Nodes of a parsed regular expression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

MAX_NAME = 249
"""Most characters of a topic's name. Repetitions are simplified for names of at most this length.
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures of a node, known before it is compiled."""

    height: int = 1
    """Levels of nodes."""
    size: int = 1
    """Transitions of the node once it is compiled, with every copy of a repeated part."""
    shortest: int = 0
    """Lower bound of the characters that the node matches."""
    is_optional: bool = False
    """True if the node matches the empty string at every position."""


_MEASURE_OF_ASSERTION = Measure()
_MEASURE_OF_CHARACTERS = Measure(shortest=1)


class TextAssertion(Enum):
    """Nodes that match the empty string at certain positions."""

    BEGIN_TEXT = auto()
    END_TEXT = auto()
    BEGIN_LINE = auto()
    END_LINE = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()

    @property
    def measure(self) -> Measure:
        return _MEASURE_OF_ASSERTION


@dataclass(frozen=True, slots=True, eq=False)
class Characters:
    """One character of a set. Bit ``i`` of ``mask`` is the character with code ``i``."""

    mask: int
    measure: Measure = _MEASURE_OF_CHARACTERS


@dataclass(frozen=True, slots=True, eq=False)
class Concatenation:
    """One part after another. Without parts it matches the empty string."""

    parts: tuple[Node, ...]
    measure: Measure


@dataclass(frozen=True, slots=True, eq=False)
class Alternation:
    """One of the parts."""

    parts: tuple[Node, ...]
    measure: Measure


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """A part, ``least`` to ``most`` times. ``most`` is None without a limit."""

    part: Node
    least: int
    most: int | None
    measure: Measure


Node: TypeAlias = TextAssertion | Characters | Concatenation | Alternation | Repetition


def concatenation(parts: list[Node]) -> Node:
    """Return a node for parts in a row. Parts without transitions are left out."""
    parts = [part for part in parts if part.measure.size]
    if len(parts) == 1:
        return parts[0]
    measures = [part.measure for part in parts]
    measure = Measure(
        height=1 + max((each.height for each in measures), default=0),
        size=sum(each.size for each in measures),
        shortest=sum(each.shortest for each in measures),
        is_optional=all(each.is_optional for each in measures),
    )
    return Concatenation(tuple(parts), measure)


def alternation(parts: list[Node]) -> Node:
    """Return a node for alternatives, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    measures = [part.measure for part in parts]
    measure = Measure(
        height=1 + max(each.height for each in measures),
        size=sum(1 + each.size for each in measures),
        shortest=min(each.shortest for each in measures),
        is_optional=any(each.is_optional for each in measures),
    )
    return Alternation(tuple(parts), measure)


def repetition(part: Node, least: int, most: int | None) -> Node:
    """Return a node for a repeated part, with as few copies of it as names of topics need.

    Matches of the part are either empty or at most ``MAX_NAME`` in number. An empty one can be
    left out or be repeated, so no count above ``MAX_NAME`` + 1 makes a difference.
    """
    inner = part.measure
    if inner.shortest * least > MAX_NAME:
        return Characters(0)
    if most is not None and most >= MAX_NAME:
        most = None
    least = 0 if inner.is_optional else min(least, MAX_NAME + 1)
    copies = max(least, 1) if most is None else most
    splits = 1 if most is None else most - least
    measure = Measure(
        height=1 + inner.height,
        size=copies * inner.size + 2 * splits,
        shortest=inner.shortest * least,
        is_optional=least == 0,
    )
    return Repetition(part, least, most, measure)
