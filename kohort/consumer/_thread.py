"""The heartbeat thread: the core of a synchronous consumer, in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
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
        self._failure: BaseException | None = None
        self._dead = False
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
            loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._dead = True
            self._started.set()
            for task in self._tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()
            # A call that came while the loop was ending was never looked at.
            for future in list(self._futures):
                if not future.done():
                    future.set_exception(self._ended())

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the core's event loop; dropped when the core has ended."""
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:
            if not self._dead:
                raise

    def call(self, function: Callable[[], Awaitable[T]]) -> Future[T]:
        """Await ``function()`` in the core; the future may be waited for in any thread."""
        future: Future[T] = Future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        self.call_soon(lambda: self._spawn(self._resolve(function, future)))
        if self._dead and not future.done():
            future.set_exception(self._ended())
        return future

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _resolve(self, function: Callable[[], Awaitable[T]], future: Future[T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = await function()
        except asyncio.CancelledError:
            future.set_exception(self._ended())
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _ended(self) -> Exception:
        if self._failure is not None:
            error = ConsumerClosedError(f"the consumer's thread ended by {self._failure!r}")
            error.__cause__ = self._failure
            return error
        return ConsumerClosedError("the consumer is closed")

    @property
    def alive(self) -> bool:
        return not self._dead

    def stop(self, timeout: float) -> None:
        """End the core and wait for the thread, but not longer than ``timeout`` seconds."""
        self.request_stop()
        self._thread.join(timeout)

    def request_stop(self) -> None:
        """End the core; do not wait."""
        if self._main is not None:
            self.call_soon(self._main.cancel)
