"""Regular expressions of RE2J, which Kafka's coordinator applies to whole names of topics.

The parser has RE2J's errors. A pattern is compiled to an automaton once, and a match needs linear
time. Names of topics are ASCII, so other characters of a pattern match nothing.
"""

from __future__ import annotations

from kohort.broker.groups.consumer._re2j._matcher import matches
from kohort.broker.groups.consumer._re2j._parser import RegexError, parse
from kohort.broker.groups.consumer._re2j._program import Program, compile_node

__all__ = ["Regex", "RegexError", "compile_regex"]


class Regex:
    """A compiled regular expression."""

    __slots__ = ("_program", "pattern")

    def __init__(self, pattern: str, program: Program) -> None:
        self.pattern = pattern
        self._program = program

    def matches(self, name: str) -> bool:
        """True if the expression matches the whole name."""
        return matches(self._program, name)


def compile_regex(pattern: str) -> Regex:
    """Compile a pattern. RegexError has RE2J's words for a pattern that it rejects."""
    return Regex(pattern, compile_node(parse(pattern)))
