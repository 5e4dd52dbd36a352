"""The background task of an async consumer, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, cast

import anyio
import anyio.lowlevel

from kohort.errors import IllegalStateError
from kohort.logs import get_logger
from kohort.transport import OneShot

logger = get_logger("kohort.consumer")

STOP_SECONDS = 5.0
"""Seconds that stop() waits for the cancelled task on asyncio. On trio it waits without a limit."""

RunEngine = Callable[[Callable[[], None]], Awaitable[None]]


class BackgroundTask(Protocol):
    """A task that runs the engine, and at times a second task that runs the user's callbacks."""

    @property
    def is_alive(self) -> bool: ...

    async def start(self, run: RunEngine) -> None:
        """Start the task and wait until the engine accepts calls."""

    def spawn(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        context: contextvars.Context | None = None,
    ) -> None:
        """Start the second task in ``context``, which is by default a copy of that of start().

        The previous second task must have ended.
        """

    async def stop(self) -> None:
        """Cancel the tasks and wait for their end, except for the calling one.

        The wait is shielded, so it also works in a cancelled task.
        """

    async def leave_block(self) -> None:
        """Leave the ``async with`` block, after the task has been stopped."""

    def abandon(self) -> None:
        """Cancel the task without waiting, from any thread."""

    def call_soon(self, action: Callable[[], object]) -> None:
        """Schedule ``action`` in the event loop, from any thread or signal handler."""


class _AsyncioTask:
    """An independent asyncio task, so that start() and stop() may be called from any task."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._callback_task: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()

    @property
    def is_alive(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def start(self, run: RunEngine) -> None:
        started = OneShot()

        async def main() -> None:
            await run(started.set)

        self._task = asyncio.create_task(main(), name="kohort")
        self._task.add_done_callback(lambda _: started.set())
        await started.wait()

    def spawn(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        context: contextvars.Context | None = None,
    ) -> None:
        context = context or self._context.copy()
        self._callback_task = asyncio.create_task(run(), name="kohort callbacks", context=context)

    async def stop(self) -> None:
        here = asyncio.current_task()
        tasks = [task for task in (self._task, self._callback_task) if task not in (None, here)]
        for task in tasks:
            task.cancel()
        if tasks:
            with anyio.CancelScope(shield=True):
                _, pending = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            if pending:
                logger.warning(
                    "the consumer's background task did not end within %g s of its cancellation: "
                    "a hook of the program blocks it or suppresses the cancellation",
                    STOP_SECONDS,
                )
        if self._task is not None and self._task.done():
            self._task = None  # its exception refers to the engine

    async def leave_block(self) -> None:
        pass

    def abandon(self) -> None:
        if self._task is not None:
            self.call_soon(self._task.cancel)

    def call_soon(self, action: Callable[[], object]) -> None:
        task = self._task  # the loop's thread may end it meanwhile
        if task is not None:
            with suppress(RuntimeError):  # the event loop is closed already
                task.get_loop().call_soon_threadsafe(action)


class _TrioToken(Protocol):
    """The part of trio's token that is used here, because kohort does not require trio."""

    def run_sync_soon(self, action: Callable[[], object]) -> None: ...


class _CallbackTask:
    """A task that runs the user's callbacks, with its cancel scope and its end."""

    def __init__(self) -> None:
        self.task: int | None = None
        self.scope = anyio.CancelScope(shield=True)
        self.ended = OneShot()


class _TaskGroupTask:
    """A trio task that is a child of the consumer's ``async with`` block.

    Only the task that entered the block may leave it, and only after the blocks inside it. But
    stop() may be called anywhere, so the task has a separate cancel scope. The scope is also a
    shield, because a cancelled block still needs the engine to leave the group.
    """

    def __init__(self) -> None:
        self._token = cast(_TrioToken, event_loop())
        self._group = anyio.create_task_group()
        self._scope = anyio.CancelScope(shield=True)
        self._ended: OneShot | None = None
        self._callback_task: _CallbackTask | None = None
        self._context = contextvars.copy_context()
        self._failure: BaseException | None = None

    @property
    def is_alive(self) -> bool:
        return self._ended is not None and not self._ended.is_set

    async def start(self, run: RunEngine) -> None:
        await self._group.__aenter__()
        started, ended = OneShot(), OneShot()
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

    def spawn(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        context: contextvars.Context | None = None,
    ) -> None:
        self._callback_task = second = _CallbackTask()

        async def main() -> None:
            second.task = anyio.get_current_task().id
            try:
                with second.scope:
                    await run()
            except BaseException as error:  # for example SystemExit from a listener
                self._failure = error
                self._group.cancel_scope.cancel()
            finally:
                second.ended.set()

        from kohort.consumer.driver._interrupts import protect

        protect(main)
        (context or self._context.copy()).run(self._group.start_soon, main)

    async def stop(self) -> None:
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            if (
                self._callback_task is not None
                and self._callback_task.task != anyio.get_current_task().id
            ):
                self._callback_task.scope.cancel()
                await self._callback_task.ended.wait()
            if self._ended is not None:
                await self._ended.wait()

    async def leave_block(self) -> None:
        if self._ended is not None:
            await self._group.__aexit__(None, None, None)
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        pass  # the block ends the task, also if the consumer is not stopped

    def call_soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._token.run_sync_soon(action)


def event_loop() -> object:
    """Return an object that identifies the running event loop; None outside of one."""
    try:
        return anyio.lowlevel.current_token().native_token
    except RuntimeError:
        return None


def loop_clock(loop: object) -> Callable[[], float]:
    """Return a fast function for the time of the running event loop.

    The function also works in callbacks and other threads, where anyio does not always find the
    event loop.
    """
    if isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is asyncio.BaseEventLoop.time:
        return time.monotonic
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.time
    import trio  # installed, because its event loop is running

    return trio.lowlevel.current_clock().current_time


def make_background_task(what: str, *, in_block: bool) -> BackgroundTask:
    """Return the background task for the running event loop. ``what`` names the client in errors.

    Raise IllegalStateError on trio outside of an ``async with`` block.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if not in_block:
            raise IllegalStateError(
                f"the {what} is not started: on trio its background task needs an 'async with' "
                f"block. Use the {what} in one"
            ) from None
        from kohort.consumer.driver._interrupts import protect_modules

        protect_modules()
        return _TaskGroupTask()
    return _AsyncioTask()
