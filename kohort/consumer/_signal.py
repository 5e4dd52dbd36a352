"""The signals by which the engine wakes a waiting caller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import anyio
import anyio.lowlevel

WAIT_SLICE_SECONDS = 0.1
"""Seconds of the main thread's first wait slice.

A signal that arrives just before a wait does not end the wait. Python runs its handler, such as
that of Ctrl-C, at the end of the slice."""
MAX_WAIT_SLICE_SECONDS = 1.0
"""Maximum seconds of a slice. Slices double, because each wake-up costs CPU time."""


def wait_slices(timeout: float) -> Iterator[float]:
    """Yield the seconds of each wait until ``timeout`` has passed.

    Python runs signal handlers in the main thread only, so other threads wait in one slice.
    """
    deadline = time.monotonic() + timeout
    is_main = threading.get_ident() == threading.main_thread().ident
    longest = WAIT_SLICE_SECONDS if is_main else threading.TIMEOUT_MAX
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, longest)
        if is_main:
            longest = min(2 * longest, MAX_WAIT_SLICE_SECONDS)


class ThreadSignal:
    """The signal for a caller in another thread, set by notify() and kept until it is cleared.

    It is a lock that is released while the signal is set. Unlike an Event, it may be set by a
    signal handler that interrupts the waiting thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        if self._lock.locked():
            with suppress(RuntimeError):  # another thread has released it
                self._lock.release()

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def wait_once(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds. If notified, clear the signal and return True."""
        return self._lock.acquire(timeout=timeout)

    def wait(self, timeout: float) -> None:
        """Wait until notified or for ``timeout`` seconds, then clear the signal.

        Ctrl-C interrupts the wait.
        """
        for seconds in wait_slices(timeout):
            if self._lock.acquire(timeout=seconds):
                return


class TaskEvent:
    """One notification of a :class:`TaskSignal`, for any number of tasks.

    On asyncio it uses futures and timers. A timeout of anyio would cancel the task, which takes
    several iterations of the event loop.
    """

    __slots__ = ("_event", "_futures", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._futures: list[asyncio.Future[None]] = []
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the waiting tasks. Later waits return immediately."""
        self._is_set = True
        for future in self._futures:
            _finish(future)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the event is set, or for ``timeout`` seconds."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
        elif (loop := asyncio_loop()) is not None:
            await self._wait_on(loop, timeout)
        else:
            if self._event is None:
                self._event = anyio.Event()
            with anyio.move_on_after(timeout):
                await self._event.wait()

    async def _wait_on(self, loop: asyncio.AbstractEventLoop, timeout: float | None) -> None:
        future = loop.create_future()
        self._futures.append(future)
        timer = None if timeout is None else loop.call_later(timeout, _finish, future)
        try:
            await future
        finally:
            self._futures.remove(future)
            if timer is not None:
                timer.cancel()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """Return asyncio's event loop if the caller runs in one of its tasks; None on trio."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else task.get_loop()


class TaskSignal:
    """The signal for any number of callers in the same event loop.

    A caller first gets the event, then checks its condition, then waits for the event. So it misses
    no notification in between.
    """

    def __init__(self) -> None:
        self._event: TaskEvent | None = None

    def notify(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def event(self) -> TaskEvent:
        """Return the event of the next notification."""
        if self._event is None:
            self._event = TaskEvent()
        return self._event
