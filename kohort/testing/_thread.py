"""An event loop in a daemon thread, for callers without a loop or with one that must not block."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

from kohort._greenlets import shared_loop, threads_are_greenlets
from kohort.errors import ThreadStartError
from kohort.logs import get_logger

logger = get_logger("kohort.testing")

STOP_SECONDS = 10.0
"""Seconds that stop() waits for the service to end."""

T = TypeVar("T")


class _SharedLoopTask:
    """A task with the methods of a thread, in the event loop that gevent's greenlets share."""

    def __init__(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self._run = run
        self._ended = threading.Event()
        self._begun = False

    def start(self) -> None:
        loop = shared_loop().loop
        self._begun = True
        loop.call_soon_threadsafe(lambda: loop.create_task(self._main(), name=self.name))

    async def _main(self) -> None:
        try:
            await self._run()
        finally:
            self._ended.set()

    def is_alive(self) -> bool:
        return self._begun and not self._ended.is_set()

    def join(self, timeout: float) -> None:
        self._ended.wait(timeout)


class LoopThread:
    """A thread that runs one async function, the service, which calls its argument when it has
    started.

    A daemon thread: it never keeps the process from ending. If gevent has replaced threads, it is a
    task of the event loop that the consumers use, too.
    """

    def __init__(self, name: str, service: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        self._service = service
        self._started: Future[None] = Future()
        self._stop: anyio.Event | None = None
        self._token: Any = None
        self._stopping = False
        # Signal handlers may call stop() inside another call of their thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | _SharedLoopTask
        if threads_are_greenlets():
            self._thread = _SharedLoopTask(name, self._main)
        else:
            self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread and wait for the service; an error of the service is raised here.

        ThreadStartError if the system refuses a thread. When this raises, nothing runs.
        """
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            raise ThreadStartError(
                f"the thread {self._thread.name!r} did not start: {error}. Lower the number of "
                "threads or raise the system's limit"
            ) from error
        except BaseException:  # Ctrl-C: the thread may have begun
            self.stop()
            raise
        try:
            self._started.result()
        except BaseException:  # Ctrl-C, for one
            self.stop()
            raise

    def stop(self) -> None:
        """Cancel the service and wait for its end, at most :data:`STOP_SECONDS`.

        A service that the thread has not reached yet does not begin.
        """
        with self._lock:
            self._stopping, stop = True, self._stop
        # The interpreter stops daemon threads when it exits, so there is nothing to wait for.
        if not self._thread.is_alive() or sys.is_finalizing():
            return
        if stop is not None:
            with suppress(RuntimeError):  # the event loop has ended just now
                self._token.native_token.call_soon_threadsafe(stop.set)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            logger.warning(
                "the thread %r did not end within %g s: code that blocks runs in its event loop",
                self._thread.name,
                STOP_SECONDS,
            )

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Run a function in the loop's thread and return what it returns."""
        if self._is_in_loop():
            return function(*args)
        return anyio.from_thread.run_sync(function, *args, token=self._token)

    def wait(self, function: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run an async function in the loop and wait for its end; not in the loop's thread."""
        anyio.from_thread.run(function, token=self._token)

    def _is_in_loop(self) -> bool:
        if isinstance(self._thread, _SharedLoopTask):
            return threading.current_thread() is shared_loop().thread
        return threading.current_thread() is self._thread

    def _run_loop(self) -> None:
        try:
            anyio.run(self._main)
        except BaseException as error:
            self._report(error)

    async def _main(self) -> None:
        try:
            await self._run()
        except BaseException as error:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        """Raise the error in start(), or here if start() has returned."""
        if self._started.done():
            raise error
        self._started.set_exception(error)

    async def _run(self) -> None:
        self._token = anyio.lowlevel.current_token()
        with self._lock:
            if self._stopping:
                return
            self._stop = anyio.Event()
        failure: list[BaseException] = []

        async def serve() -> None:
            try:
                await self._service(lambda: self._started.set_result(None))
            except Exception as error:
                # The task group would raise it in an exception group.
                failure.append(error)
            assert self._stop is not None
            self._stop.set()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await self._stop.wait()
            group.cancel_scope.cancel()
        if failure:
            raise failure[0]
