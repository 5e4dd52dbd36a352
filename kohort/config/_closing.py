"""The limit of closing, which is an argument of close() and not an option."""

from __future__ import annotations

from typing import Final

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that closing, and leaving a group, take at most unless the caller says otherwise."""
