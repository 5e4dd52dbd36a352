"""Arguments of measurements that are lists."""

from __future__ import annotations

import argparse
from collections.abc import Collection


def words(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(",")]


def numbers(text: str) -> list[int]:
    """Return the whole numbers between commas."""
    return [int(word) for word in text.split(",")]


def require_known(
    parser: argparse.ArgumentParser, given: Collection[str], known: Collection[str]
) -> None:
    """Exit with a message that names the unknown words."""
    if unknown := set(given).difference(known):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
