"""Error of a pattern."""

from __future__ import annotations


class RegexError(ValueError):
    """A pattern is not valid. The message has RE2J's words, such as ``missing closing ]``."""
