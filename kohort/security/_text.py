"""Texts of errors, in which words of other parties are escaped."""

from __future__ import annotations

from kohort.types import escaped

MAX_TEXT = 200
"""Characters of a text by a broker or a certificate that an error repeats."""


def printable(text: str) -> str:
    """Return the text without control characters, and not longer than an error may be."""
    shown = escaped(text)
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."
