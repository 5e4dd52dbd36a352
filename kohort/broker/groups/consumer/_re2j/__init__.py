"""Regular expressions of RE2J, which Kafka's coordinator applies to whole names of topics.

The parser has RE2J's errors. A pattern is compiled to an automaton once, and a match needs linear
time. Names of topics are ASCII, so other characters of a pattern match nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from kohort.broker.groups.consumer._re2j._matcher import Matcher
from kohort.broker.groups.consumer._re2j._parser import RegexError, parse
from kohort.broker.groups.consumer._re2j._program import compile_node

__all__ = ["Regex", "RegexError", "compile_regex"]

_WORK = 50_000
"""Visited states of a pattern's program in one call of :meth:`Regex.prepare`."""


class Regex:
    """A compiled regular expression."""

    __slots__ = ("_matcher", "pattern")

    def __init__(self, pattern: str, matcher: Matcher) -> None:
        self.pattern = pattern
        self._matcher = matcher

    def matches(self, name: str) -> bool:
        """True if the expression matches the whole name."""
        return self._matcher.matches(name)

    def prepare(self, names: Collection[str]) -> bool:
        """Compute whether names match, for some hundredths of a second at most.

        Return True if that is known for all names. Otherwise the next call continues.
        """
        return self._matcher.prepare(names, _WORK)


@lru_cache(maxsize=32)
def compile_regex(pattern: str) -> Regex:
    """Compile a pattern. RegexError has RE2J's words for a pattern that it rejects."""
    return Regex(pattern, Matcher(compile_node(parse(pattern))))
