"""Parsers of numbers in the options of the commands."""

from __future__ import annotations

import argparse

MAX_DIGITS = 18
"""Limit of digits. No option needs more, and Python refuses very long numbers."""


def whole_above_zero(text: str) -> int:
    """Parse a whole number above 0. Raise ArgumentTypeError for anything else."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def above_zero(text: str) -> float:
    """Parse a number above 0. Raise ArgumentTypeError for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def chance(text: str) -> float:
    """Parse a probability above 0 and up to 1. Raise ArgumentTypeError for anything else."""
    number = above_zero(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a chance: above 0, up to 1")
    return number


def port(text: str) -> int:
    """Parse a port from 0 to 65535. Raise ArgumentTypeError for anything else."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)
