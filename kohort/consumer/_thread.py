"""The heartbeat thread: the core of a synchronous consumer, in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from kohort.consumer._work import CoreLink
from kohort.errors import ConsumerClosedError

T = TypeVar("T")


class Core(Protocol):
    """What the thread runs."""

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled; ``started`` is called when other calls may come."""


class CoreThread(CoreLink):
    """A daemon thread with an event loop: it never holds up the end of the process.

    (anyio's blocking portal would: its thread is joined at exit.) The event loop is asyncio's.
    """

    def __init__(self, core: Core, name: str) -> None:
        self._core = core
        self._loop = asyncio.new_event_loop()
        self._main: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._futures: set[Future[Any]] = set()
        self._started = threading.Event()
        self._ending = False
        # Held while calls are handed over, so that none slips in behind the last look at them.
        # A signal handler may call in the midst of another call of its thread.
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, and wait until calls may come."""
        self._thread.start()
        self._started.wait()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            self._main = loop.create_task(self._core.run(self._started.set))
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(self._main)
        finally:
            with self._lock:
                self._ending = True
            self._started.set()
            loop.run_until_complete(self._end_calls())
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()

    async def _end_calls(self) -> None:
        await asyncio.sleep(0)  # calls that were handed over and not begun begin, and end
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for future in list(self._futures):
            self._refuse(future)

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the core's event loop; dropped when the core has ended."""
        with self._lock:
            if not self._ending:
                self._loop.call_soon_threadsafe(action)

    def call(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        """Await ``function()`` in the core; the future may be waited for in any thread."""
        future: Future[T] = Future()
        with self._lock:
            if self._ending:
                self._refuse(future)
            else:
                self._futures.add(future)
                self._loop.call_soon_threadsafe(self._spawn, function, future)
        return future

    def _spawn(self, function: Callable[[], Awaitable[Any]], future: Future[Any]) -> None:
        task = self._loop.create_task(self._resolve(function, future))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, function: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        self._futures.discard(future)
        if self._ending:
            self._refuse(future)
        elif future.set_running_or_notify_cancel():
            try:
                result = await function()
            except asyncio.CancelledError:
                self._refuse(future)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _refuse(self, future: Future[Any]) -> None:
        if future.running() or future.set_running_or_notify_cancel():
            future.set_exception(ConsumerClosedError("the consumer is closed"))

    @property
    def running(self) -> bool:
        """The thread has not ended yet."""
        return self._thread.is_alive()

    def stop(self, timeout: float) -> None:
        """End the core and wait for the thread, but not longer than ``timeout`` seconds."""
        self.request_stop()
        self._thread.join(timeout)

    def request_stop(self) -> None:
        """End the core; do not wait."""
        if self._main is not None:
            self.call_soon(self._main.cancel)
