"""Waiting for what other threads, processes and machines do, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 40.0
LOOK_AGAIN_S = 0.01


def look_again_soon() -> None:
    """The pause between two looks."""
    time.sleep(LOOK_AGAIN_S)


def wait_until(
    predicate: Callable[[], T],
    meanwhile: Callable[[], object] = look_again_soon,
    *,
    explain: Callable[[], object] = str,
    deadline_s: float = DEADLINE_S,
) -> T:
    """Do something again and again until the predicate holds; what it returned.

    ``explain`` says how things stand when it does not in time.
    """
    deadline = time.monotonic() + deadline_s
    while not (result := predicate()):
        assert time.monotonic() < deadline, f"not true in {deadline_s:g} s; {explain()}"
        meanwhile()
    return result
