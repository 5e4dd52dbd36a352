"""Loggers of kohort, whose records have fields for programs that search logs.

Programs use the loggers below ``kohort`` of Python's ``logging``.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from kohort.logs._fields import PlacedText, error_text, get_logger

__all__ = ["PlacedText", "error_text", "get_logger"]
