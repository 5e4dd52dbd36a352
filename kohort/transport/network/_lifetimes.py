"""Tasks, coroutines and callbacks that leave nothing to the garbage collector."""

from __future__ import annotations

import math
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from kohort.transport.network._loop import callback_loop

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

P = ParamSpec("P")
T = TypeVar("T")


def start_soon(tasks: TaskGroup, function: Callable[..., Awaitable[object]], *args: object) -> None:
    """Start a task in the group. On asyncio, a cancelled group ends it without an exception.

    anyio's callback for the end of a task has a variable for the task's exception. The traceback
    of that exception contains the frame of the callback. This cycle would keep the frames of the
    task, and so every object of a consumer, until the garbage collector runs.
    """
    tasks.start_soon(Deferred, function, args, name=getattr(function, "__qualname__", None))


async def _run_child(function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
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


def weak_callback(method: Callable[P, T]) -> Callable[P, T]:
    """Return a function that calls a bound method without a reference to its object.

    An object gives it to the objects that it owns. With the method itself, both would refer to
    each other, and their memory would wait for the garbage collector. The function raises
    ReferenceError once the object is gone.
    """
    find = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        found = find()
        if found is None:
            raise ReferenceError("the object of the callback is gone")
        return found(*args, **kwargs)

    return call


class Deferred(Coroutine[Any, Any, None]):
    """The coroutine of _run_child(), which is created when its task begins.

    ``asyncio.run()`` cancels all tasks at its end, including those that have not begun. In such a
    task anyio never awaits the coroutine, and Python warns of it. A program that forgets to close
    a consumer would get that warning besides the one that names the consumer.
    """

    def __init__(self, function: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        self._begin: Callable[[], Coroutine[Any, Any, None]] | None = partial(
            _run_child, function, args
        )
        self._coroutine: Coroutine[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        return self._made().__await__()

    def _made(self) -> Coroutine[Any, Any, None]:
        if self._coroutine is None:
            assert self._begin is not None
            self._coroutine, self._begin = self._begin(), None
        return self._coroutine

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._made().send(value)

    def throw(self, *raised: Any) -> Any:
        """Raise an exception inside the coroutine."""
        return self._made().throw(*raised)

    def close(self) -> None:
        """End the coroutine, if it has begun."""
        if self._coroutine is not None:
            self._coroutine.close()
