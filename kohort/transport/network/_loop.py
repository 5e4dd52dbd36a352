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
    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Any: ...
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
    """An event that is set once, for any number of tasks of one event loop.

    On asyncio a wait is a bare future, which costs a fraction of an :class:`anyio.Event`, and a
    timeout is a timer. A timeout of anyio would cancel the task, which takes several iterations of
    the event loop. It may be created and set in callbacks, in which anyio finds no event loop.
    """

    __slots__ = ("_event", "_futures", "_loop", "is_set")

    def __init__(self, loop: CallbackLoop | None = None) -> None:
        """Without ``loop`` each wait finds its event loop, which takes 2 us."""
        self._loop = loop
        self.is_set: bool = False
        """True once set() was called."""
        self._futures: list[Any] = []
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the waiting tasks. Later waits end immediately."""
        self.is_set = True
        for future in self._futures:
            _finish(future)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is set, or for ``timeout`` seconds."""
        if self.is_set:
            await anyio.lowlevel.checkpoint()
        elif (loop := self._loop or callback_loop()) is None:
            if self._event is None:
                self._event = anyio.Event()
            if timeout is None:
                await self._event.wait()  # without the cost of a scope
            else:
                with anyio.move_on_after(timeout):
                    await self._event.wait()
        else:
            future = loop.create_future()
            self._futures.append(future)
            timer = None if timeout is None else loop.call_later(timeout, _finish, future)
            try:
                await future
            finally:
                self._futures.remove(future)
                if timer is not None:
                    timer.cancel()


def _finish(future: Any) -> None:
    if not future.done():
        future.set_result(None)


class TaskSignal:
    """A signal for any number of tasks in the event loop that notifies.

    Get the event, check the condition, then wait for the event. So no notification in between is
    missed. If nothing runs between the check and the wait, wait() is enough.
    """

    __slots__ = ("_event", "_loop")

    def __init__(self, loop: CallbackLoop | None = None) -> None:
        """``loop`` is that of the events, see :class:`OneShot`."""
        self._loop = loop
        self._event: OneShot | None = None

    def notify(self) -> None:
        """Wake the waiting tasks, because the condition may have changed."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def event(self) -> OneShot:
        """Return the event of the next notification."""
        if self._event is None:
            self._event = OneShot(self._loop)
        return self._event

    async def wait(self) -> None:
        """Wait for the next notification."""
        await self.event().wait()
