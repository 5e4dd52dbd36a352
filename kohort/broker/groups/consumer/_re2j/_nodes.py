"""Nodes of a parsed regular expression."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias


class TextAssertion(Enum):
    """Nodes that match the empty string at certain positions."""

    BEGIN_TEXT = auto()
    END_TEXT = auto()
    BEGIN_LINE = auto()
    END_LINE = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()

    @property
    def height(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, eq=False)
class Characters:
    """One character of a set. Bit ``i`` of ``mask`` is the character with code ``i``."""

    mask: int
    height: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Concatenation:
    """One part after another. Without parts it matches the empty string."""

    parts: tuple[Node, ...]
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Alternation:
    """One of the parts."""

    parts: tuple[Node, ...]
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Repetition:
    """A part, ``least`` to ``most`` times. ``most`` is None without a limit."""

    part: Node
    least: int
    most: int | None
    height: int


Node: TypeAlias = TextAssertion | Characters | Concatenation | Alternation | Repetition


def concatenation(parts: list[Node]) -> Node:
    """Return a node for parts in a row."""
    if len(parts) == 1:
        return parts[0]
    return Concatenation(tuple(parts), 1 + max((part.height for part in parts), default=0))


def alternation(parts: list[Node]) -> Node:
    """Return a node for alternatives, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    return Alternation(tuple(parts), 1 + max(part.height for part in parts))


def repetition(part: Node, least: int, most: int | None) -> Node:
    """Return a node for a repeated part."""
    return Repetition(part, least, most, 1 + part.height)
