"""Calls of the user's functions and of blocking functions, off the event loop."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

T = TypeVar("T")

CALL_SECONDS = 10.0
"""Longest time that a provider of credentials or tokens may take."""
MAX_THREADS = 8
"""Threads of an event loop that log in at a time. A call that hangs occupies one."""
FULL_SECONDS = 0.1
"""Pause before the next look where all threads are occupied."""

_threads: anyio.lowlevel.RunVar[list[threading.Thread]] = anyio.lowlevel.RunVar(
    "kohort.security.threads"
)


class _ThreadCall(Generic[T]):
    """A call in a daemon thread: one that hangs does not keep the process from exiting."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.thread = threading.Thread(target=self._run, name="kohort-login", daemon=True)
        self._function = function
        self._context = contextvars.Context()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._over = threading.Event()

    def wait(self) -> list[T]:
        """Make the call, and return its result in a list. Empty after give_up()."""
        # That of a worker thread, which belongs to no event loop.
        self._context = contextvars.copy_context()
        self.thread.start()
        self._over.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # it has this frame in its traceback
        result, self._result = self._result, []
        return result

    def give_up(self) -> None:
        """End wait(). The thread goes on until the call returns."""
        self._over.set()

    def _run(self) -> None:
        try:
            self._result = [self._context.run(self._function)]
        except BaseException as error:
            self._error = error
        self._over.set()


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread. A cancelled caller does not wait for it."""
    try:
        threads = _threads.get()
    except LookupError:
        threads = []
        _threads.set(threads)
    while len(_alive(threads)) >= MAX_THREADS:  # noqa: ASYNC110 (threads set no event)
        await anyio.sleep(FULL_SECONDS)
    call = _ThreadCall(function)
    threads.append(call.thread)
    try:
        (result,) = await anyio.to_thread.run_sync(
            call.wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
        return result
    finally:
        call.give_up()


def _alive(threads: list[threading.Thread]) -> list[threading.Thread]:
    """Remove the threads that ended. Those that have not begun stay."""
    threads[:] = [each for each in threads if each.ident is None or each.is_alive()]
    return threads


async def call(function: Callable[[], Any], seconds: float = CALL_SECONDS) -> Any:
    """Call a function of the user's, sync or async, and return its result.

    A coroutine function runs on the event loop, any other function in a worker thread. Raises
    TimeoutError after ``seconds``, and what the function raises.
    """
    with anyio.fail_after(seconds):
        if inspect.iscoroutinefunction(function):
            return await function()
        # In a tuple, because trio refuses a function that returns a coroutine.
        (result,) = await in_thread(lambda: (function(),))
        return await result if inspect.isawaitable(result) else result
