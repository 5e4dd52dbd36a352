"""The one task that an asynchronous consumer owns, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, cast

import anyio
import anyio.lowlevel

from kohort.consumer._interrupts import protect_core
from kohort.errors import IllegalStateError

logger = logging.getLogger("kohort.consumer")

STOP_SECONDS = 5.0
"""Seconds that stop() waits for the cancelled task on asyncio. Trio has no task without a wait."""

Run = Callable[[Callable[[], None]], Awaitable[None]]


class Root(Protocol):
    """A task that runs the core."""

    @property
    def alive(self) -> bool: ...

    async def start(self, run: Run) -> None:
        """Start the task, and wait until the core takes calls."""

    async def stop(self) -> None:
        """Cancel the task and wait for its end, also in a cancelled task."""

    async def leave_block(self) -> None:
        """The ``async with`` block ends; the task has been stopped."""

    def abandon(self) -> None:
        """Cancel the task, from wherever; nobody waits."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Call it in the event loop, soon, from whatever thread or signal handler."""


class _TaskRoot:
    """On asyncio a task of its own, so that start() and stop() may be called from any task."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def start(self, run: Run) -> None:
        started = anyio.Event()

        async def main() -> None:
            await run(started.set)

        self._task = asyncio.create_task(main(), name="kohort")
        self._task.add_done_callback(lambda _: started.set())
        await started.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with anyio.CancelScope(shield=True):
                _, pending = await asyncio.wait([self._task], timeout=STOP_SECONDS)
            if pending:
                logger.warning(
                    "the consumer's task did not end within %g s of its cancellation: a hook of "
                    "the program holds it up",
                    STOP_SECONDS,
                )

    async def leave_block(self) -> None:
        pass

    def abandon(self) -> None:
        if self._task is not None:
            self.call_soon(self._task.cancel)

    def call_soon(self, action: Callable[[], object]) -> None:
        if self._task is not None:
            with suppress(RuntimeError):  # the event loop is closed already
                self._task.get_loop().call_soon_threadsafe(action)


class _TrioToken(Protocol):
    """The part of trio's token that is needed here; kohort itself does without trio."""

    def run_sync_soon(self, action: Callable[[], object]) -> None: ...


class _BlockRoot:
    """On trio a child of the ``async with`` block that the consumer is.

    The task has a cancel scope of its own: the block may be left by its own task only, and not from
    within another block, but stop() may be called anywhere. It is a shield, too: a block that is
    cancelled still needs the core to leave the group in good order.
    """

    def __init__(self) -> None:
        self._token = cast(_TrioToken, event_loop())
        self._group = anyio.create_task_group()
        self._scope = anyio.CancelScope(shield=True)
        self._ended: anyio.Event | None = None

    @property
    def alive(self) -> bool:
        return self._ended is not None and not self._ended.is_set()

    async def start(self, run: Run) -> None:
        await self._group.__aenter__()
        started, ended = anyio.Event(), anyio.Event()
        self._ended = ended

        async def main() -> None:
            try:
                with self._scope:
                    await run(started.set)
            finally:
                ended.set()
                started.set()

        self._group.start_soon(main)
        await started.wait()

    async def stop(self) -> None:
        self._scope.cancel()
        if self._ended is not None:
            with anyio.CancelScope(shield=True):
                await self._ended.wait()

    async def leave_block(self) -> None:
        if self._ended is not None:
            await self._group.__aexit__(None, None, None)

    def abandon(self) -> None:
        pass  # the block ends the task, whatever becomes of the consumer

    def call_soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._token.run_sync_soon(action)


def event_loop() -> object:
    """What is one and the same within one run of an event loop; None outside of any."""
    try:
        return anyio.lowlevel.current_token().native_token
    except RuntimeError:
        return None


def loop_clock(loop: object) -> Callable[[], float]:
    """What anyio.current_time() is in this event loop, without finding out each time."""
    if isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is asyncio.BaseEventLoop.time:
        return time.monotonic
    return anyio.current_time


def make_root(*, in_block: bool) -> Root:
    """The root for the event loop that is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if not in_block:
            raise IllegalStateError(
                "on trio use 'async with AsyncKafkaConsumer(...) as consumer': a task of trio's "
                "lives in a block, so start() and stop() cannot stand alone"
            ) from None
        protect_core()
        return _BlockRoot()
    return _TaskRoot()
