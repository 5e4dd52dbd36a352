"""Features of the running event loop, looked up once and not at each use, and its events."""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    import selectors

    from kohort.transport.network._poller import FrameSelector


class CallbackLoop(Protocol):
    """Methods of asyncio's event loop that replace tasks and events."""

    def time(self) -> float: ...
    def create_future(self) -> Any: ...
    def call_soon(self, callback: Callable[[], object]) -> Any: ...
    def add_reader(self, fd: Any, callback: Callable[[], object]) -> None: ...
    def remove_reader(self, fd: Any) -> bool: ...
    def add_writer(self, fd: Any, callback: Callable[[], object]) -> None: ...
    def remove_writer(self, fd: Any) -> bool: ...
    def is_closed(self) -> bool: ...


@types.coroutine
def suspended() -> Generator[None, None, None]:
    """Suspend until the next ``send(None)`` to the coroutine."""
    yield


def callback_loop() -> CallbackLoop | None:
    """Return the running event loop if it is asyncio's, or None on trio."""
    loop = anyio.lowlevel.current_token().native_token
    return cast(CallbackLoop, loop) if hasattr(loop, "create_future") else None


def frame_selector(inner: selectors.BaseSelector) -> FrameSelector | None:
    """Return a selector that receives frames while ``inner`` waits, or None without one.

    An event loop that uses it stores it in its attribute ``frame_selector``.
    """
    from kohort.transport.network._poller import make_frame_selector

    return make_frame_selector(inner)


def frame_selector_of(loop: CallbackLoop) -> FrameSelector | None:
    """Return the frame selector of an event loop, or None."""
    selector: FrameSelector | None = getattr(loop, "frame_selector", None)
    return selector


def clock_of(loop: CallbackLoop | None) -> Callable[[], float]:
    """Return the function for ``anyio.current_time`` in this event loop. None means trio."""
    return anyio.current_time if loop is None else loop.time


def running_clock() -> Callable[[], float]:
    """Return the function for ``anyio.current_time`` in the running event loop."""
    return clock_of(callback_loop())


class OneShot:
    """An event that is set once and has one waiting task.

    On asyncio it is a bare future, which costs a fraction of an :class:`anyio.Event`.
    """

    __slots__ = ("_is_set", "_loop", "_waiter")

    def __init__(self, loop: CallbackLoop | None) -> None:
        self._loop = loop
        self._is_set = False
        self._waiter: Any = None

    @property
    def is_set(self) -> bool:
        """True once set() was called."""
        return self._is_set

    def set(self) -> None:
        """Wake the waiting task, if there is one."""
        self._is_set = True
        waiter = self._waiter
        if isinstance(waiter, anyio.Event):
            waiter.set()
        elif waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            return
        if self._loop is None:
            event = self._waiter = anyio.Event()
            await event.wait()
        else:
            future = self._waiter = self._loop.create_future()
            await future


class RepeatableEvent:
    """An event that wakes all tasks that wait at the moment.

    Check a condition, then call wait(). Nothing runs in between, so no set() is missed. It belongs
    to one thread.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the waiting tasks, because the condition may have changed."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next set()."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
