"""Tasks that free their objects at their end, without the garbage collector."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio

from kohort.transport._loop import callback_loop

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


def start_soon(tasks: TaskGroup, function: Callable[..., Awaitable[object]], *args: object) -> None:
    """Start a task in the group. On asyncio, a cancelled group ends it without an exception.

    anyio's callback for the end of a task has a variable for the task's exception. The traceback
    of that exception contains the frame of the callback. This cycle would keep the frames of the
    task, and so every object of a consumer, until the garbage collector runs.
    """
    tasks.start_soon(run_child, function, args, name=getattr(function, "__qualname__", None))


async def run_child(function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
    """Await the function. If its task group is cancelled on asyncio, end without an exception."""
    awaitable = function(*args)
    del function, args
    try:
        await awaitable
    except anyio.get_cancelled_exc_class():
        # On trio only the exceptions of its tasks end a waiting task group. On asyncio the event
        # loop may have cancelled this single task.
        if callback_loop() is None or anyio.current_effective_deadline() != -math.inf:
            raise


class Started:
    """A task status for tasks of start_soon(), with a method to wait for it."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def started(self, value: None = None) -> None:
        """End wait(). The task calls this."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the task to call started()."""
        await self._event.wait()
