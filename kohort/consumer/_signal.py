"""How the core wakes a caller that waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import anyio
import anyio.lowlevel

WAIT_SLICE_SECONDS = 0.1
"""Seconds that the main thread waits at first. A signal that comes in the moment before the thread
begins to wait does not wake it; its handler (Ctrl-C's, for one) runs when the slice is over."""
MAX_WAIT_SLICE_SECONDS = 1.0
"""A wait that lasts gets longer slices, twice as long each time: a wake-up costs CPU."""


def wait_slices(timeout: float) -> Iterator[float]:
    """Seconds to wait at a time until ``timeout`` is over.

    Python runs signal handlers in the main thread only, so any other thread waits in one piece.
    """
    deadline = time.monotonic() + timeout
    is_main = threading.get_ident() == threading.main_thread().ident
    longest = WAIT_SLICE_SECONDS if is_main else threading.TIMEOUT_MAX
    while (left := deadline - time.monotonic()) > 0:
        yield min(left, longest)
        if is_main:
            longest = min(2 * longest, MAX_WAIT_SLICE_SECONDS)


class ThreadSignal:
    """For a caller in another thread: remembers that it was given until it is cleared.

    A lock that is open when the signal is given. Unlike an Event it may be given by a signal
    handler which interrupts the very thread that waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def notify(self) -> None:
        if self._lock.locked():
            with suppress(RuntimeError):  # somebody else was faster
                self._lock.release()

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def wait_once(self, timeout: float) -> bool:
        """Wait for ``timeout`` seconds at most. True if notified; it is cleared then."""
        return self._lock.acquire(timeout=timeout)

    def wait(self, timeout: float) -> None:
        """Wait, interruptibly by Ctrl-C, until notified or for ``timeout`` seconds; clears it."""
        for seconds in wait_slices(timeout):
            if self._lock.acquire(timeout=seconds):
                return


class TaskEvent:
    """One notification of a :class:`TaskSignal`, for any number of tasks.

    On asyncio its waits are bare futures and its time-outs timers: a time-out of anyio's cancels
    the task, which takes several turns of the event loop.
    """

    __slots__ = ("_event", "_futures", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._futures: list[asyncio.Future[None]] = []
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake the tasks that wait."""
        self._is_set = True
        for future in self._futures:
            _finish(future)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout: float | None = None) -> None:
        """Return when it was given, or after ``timeout`` seconds."""
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
    """For callers in the same event loop, any number of them.

    Take the event first, then look for what you want, then wait for the event: what comes in
    between is not missed.
    """

    def __init__(self) -> None:
        self._event: TaskEvent | None = None

    def notify(self) -> None:
        event, self._event = self._event, None
        if event is not None:
            event.set()

    def event(self) -> TaskEvent:
        """The event of the next notification."""
        if self._event is None:
            self._event = TaskEvent()
        return self._event
