"""Computations in steps, so that the event loop sends heartbeats while a large group is assigned.

A computation is a generator. It yields after each step of about a millisecond at most, and returns
its result.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint

T = TypeVar("T")
V = TypeVar("V")

Steps = Generator[None, None, T]

STEP = 1000
"""Partitions that a computation looks at in one step."""
SLICE_SECONDS = 0.005
"""Seconds of work between two iterations of the event loop. Sending a request takes several."""


def in_steps(items: Collection[V]) -> Iterator[list[V]]:
    """Yield the items in lists of at most :data:`STEP`. The caller yields after each list."""
    found = iter(items)
    while step := list(islice(found, STEP)):
        yield step


def finish(steps: Steps[T]) -> T:
    """Run a computation without a pause and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def finish_in_slices(steps: Steps[T]) -> T:
    """Run a computation and let the event loop run every :data:`SLICE_SECONDS`.

    The clock is the event loop's. On a virtual clock no time passes during a computation, so there
    is no pause, and a simulation is the same on every machine.
    """
    until = anyio.current_time() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if anyio.current_time() >= until:
            await checkpoint()
            until = anyio.current_time() + SLICE_SECONDS
