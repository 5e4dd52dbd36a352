"""Waiting with a deadline for other threads, processes and machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 180.0
LOOK_AGAIN_S = 0.01


def look_again_soon() -> None:
    """Pause between two checks."""
    time.sleep(LOOK_AGAIN_S)


def wait_until(
    predicate: Callable[[], T],
    meanwhile: Callable[[], object] = look_again_soon,
    *,
    explain: Callable[[], object] = str,
    deadline_s: float = DEADLINE_S,
) -> T:
    """Return the result of the predicate as soon as it is true.

    ``meanwhile`` runs between the checks. ``explain`` describes the state when the time is over.
    """
    deadline = time.monotonic() + deadline_s
    while not (result := predicate()):
        assert time.monotonic() < deadline, f"not true in {deadline_s:g} s; {explain()}"
        meanwhile()
    return result
