"""trio on a clock that jumps as soon as everybody waits, the same each time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar
from unittest.mock import patch

import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

T = TypeVar("T")


def run_virtual(
    main: Callable[..., Awaitable[T]],
    *args: object,
    seed: int = 0,
    clock: MockClock | None = None,
) -> T:
    """What ``main(*args)`` returns. ``seed`` decides in which order ready tasks take their turn.

    trio shuffles the tasks that are ready, from whatever order its sets have them in. With its
    switch for deterministic scheduling it sorts them by age first, and its generator is ours here.
    """
    with (
        patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(scheduler, "_r", random.Random(seed)),
    ):
        return trio.run(main, *args, clock=clock or MockClock(autojump_threshold=0))
