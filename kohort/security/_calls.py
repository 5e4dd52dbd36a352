"""Calls of the user's functions and of blocking functions, off the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

T = TypeVar("T")

CALL_SECONDS = 10.0
"""Longest time that a provider of credentials or tokens may take."""
MAX_THREADS = 8
"""Worker threads of an event loop that log in at a time. A call that hangs occupies one."""

_threads: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar(
    "kohort.security.threads"
)


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a worker thread. A cancelled caller does not wait for it."""
    try:
        limiter = _threads.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_THREADS)
        _threads.set(limiter)
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)


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
