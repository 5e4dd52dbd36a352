"""Patterns of topic names."""

from __future__ import annotations

import re


class RegexError(ValueError):
    """A pattern that is not valid."""


class Regex:
    """A compiled pattern, which matches whole names."""

    def __init__(self, pattern: str) -> None:
        try:
            self._compiled = re.compile(pattern, re.ASCII)
        except re.error as error:
            raise RegexError(str(error)) from None

    def matches(self, name: str) -> bool:
        """True if the whole name matches."""
        return self._compiled.fullmatch(name) is not None


def compile_regex(pattern: str) -> Regex:
    """Return the compiled pattern; RegexError if it is not valid."""
    return Regex(pattern)
