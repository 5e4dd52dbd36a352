"""Numbers among the options of the commands."""

from __future__ import annotations

import argparse

MAX_DIGITS = 18
"""More are no number that an option could mean, and Python refuses to read very long ones."""


def whole_above_zero(text: str) -> int:
    """Read a whole number above 0; ArgumentTypeError for everything else."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def above_zero(text: str) -> float:
    """Read a number above 0; ArgumentTypeError for everything else."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def chance(text: str) -> float:
    """Read a probability above 0, up to 1; ArgumentTypeError for everything else."""
    number = above_zero(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a chance: above 0, up to 1")
    return number


def port(text: str) -> int:
    """Read a port, 0 to 65535; ArgumentTypeError for everything else."""
    if not text.isdecimal() or len(text) > MAX_DIGITS or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0 to 65535")
    return int(text)
