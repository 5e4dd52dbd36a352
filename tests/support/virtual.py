"""Event loops on a virtual clock that jumps as soon as all tasks wait. trio's is deterministic."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from unittest.mock import patch

import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from kohort.testing import VirtualLoop

T = TypeVar("T")


def run_virtual(
    main: Callable[..., Awaitable[T]],
    *args: object,
    seed: int = 0,
    clock: MockClock | None = None,
) -> T:
    """Return the result of ``main(*args)``. ``seed`` selects the order in which ready tasks run.

    trio shuffles the tasks that are ready, which it keeps in sets without a fixed order. With its
    switch for deterministic scheduling it sorts them by age first. This function replaces its
    random generator.
    """
    with (
        patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(scheduler, "_r", random.Random(seed)),
    ):
        return trio.run(main, *args, clock=clock or MockClock(autojump_threshold=0))


_loop: contextvars.ContextVar[VirtualLoop] = contextvars.ContextVar("loop")


def run_virtual_on(backend: str, main: Callable[[], Awaitable[T]], *, seed: int = 0) -> T:
    """Run as :func:`run_virtual` does, on "trio" or on "asyncio". ``seed`` is for trio."""
    if backend == "trio":
        return run_virtual(main, seed=seed)

    async def on_asyncio() -> T:
        _loop.set(cast(VirtualLoop, asyncio.get_running_loop()))
        return await main()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(on_asyncio())


def virtual_backend(name: str) -> tuple[str, dict[str, Any]]:
    """Return the backend of anyio with that name on a virtual clock, for ``anyio_backend``."""
    if name == "trio":
        return name, {"clock": MockClock(autojump_threshold=0)}
    return name, {"loop_factory": VirtualLoop}


def pass_time(seconds: float) -> None:
    """Block the event loop of :func:`run_virtual_on` for ``seconds`` of its virtual clock."""
    loop = _loop.get(None)
    if loop is not None:
        loop.now += seconds
    else:
        cast(MockClock, trio.lowlevel.current_clock()).jump(seconds)
