"""Computations in steps, so that the event loop sends heartbeats while a large group is assigned.

A computation is a generator that yields after each step, at most about a millisecond of work, and
returns its result.
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
"""Seconds between two turns of the event loop. A request takes several turns to go out."""


def in_steps(items: Collection[V]) -> Iterator[list[V]]:
    """The items in lists of at most :data:`STEP`; yield after each of them."""
    found = iter(items)
    while step := list(islice(found, STEP)):
        yield step


def finish(steps: Steps[T]) -> T:
    """Run a computation to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def finish_in_slices(steps: Steps[T]) -> T:
    """Run a computation, giving the event loop a turn every :data:`SLICE_SECONDS`.

    The time is the event loop's. On a virtual clock no time passes while a computation runs, so
    there are no turns, and a simulation stays the same on every machine.
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
