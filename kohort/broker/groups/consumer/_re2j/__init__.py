"""Regular expressions of RE2J, which Kafka's coordinator applies to whole names of topics.

The parser has RE2J's errors. A pattern is compiled to an automaton once, and a match needs linear
time. Names of topics are ASCII, so other characters of a pattern match nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort.broker.groups.consumer._re2j._matcher import Matcher, Work
from kohort.broker.groups.consumer._re2j._parser import RegexError, parse
from kohort.broker.groups.consumer._re2j._program import compile_node

__all__ = ["Regex", "RegexError", "Work", "compile_regex"]


class Regex:
    """A compiled regular expression, which keeps results. Threads must not share it."""

    __slots__ = ("_matcher", "pattern")

    def __init__(self, pattern: str, matcher: Matcher) -> None:
        self.pattern = pattern
        self._matcher = matcher

    def matches(self, name: str) -> bool:
        """True if the expression matches the whole name."""
        return self._matcher.matches(name)

    def prepare(self, names: Collection[str], work: Work) -> bool:
        """Compute whether names match, until the work is done.

        Return True if that is known for all names. Otherwise the next call continues.
        """
        return self._matcher.prepare(names, work)


def compile_regex(pattern: str) -> Regex:
    """Compile a pattern. RegexError has RE2J's words for a pattern that it rejects."""
    return Regex(pattern, Matcher(compile_node(parse(pattern))))
