"""The consumer thread in a process whose threads are gevent's greenlets.

asyncio allows one running event loop for each system thread, and greenlets share one thread. So all
consumers share one event loop, which runs in one greenlet until the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from kohort.consumer._thread import (
    START_SECONDS,
    ConsumerThread,
    EngineProtocol,
    make_thread,
    start_thread,
)
from kohort.consumer._thread_loop import new_event_loop
from kohort.errors import IllegalStateError

logger = logging.getLogger("kohort.consumer")


class SharedLoop:
    """An event loop in a greenlet, which gevent creates instead of a thread."""

    def __init__(self) -> None:
        self.loop, self.is_busy = new_event_loop()
        self._pid = os.getpid()
        self._thread = make_thread("kohort-heartbeats", self._run)

    def start(self) -> None:
        """Start the greenlet, or raise ThreadStartError."""
        start_thread(self._thread)

    @property
    def is_usable(self) -> bool:
        """True if it runs in this process, or is about to."""
        ended = self._thread.ident is not None and not self._thread.is_alive()
        return self._pid == os.getpid() and not ended

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self.loop.is_closed():
            try:
                self.loop.run_forever()
                return
            except (SystemExit, KeyboardInterrupt) as error:
                # Only these two stop the event loop, which the other consumers still need.
                logger.exception(
                    "%s was raised by a callback in kohort's event loop and is ignored there. "
                    "Raise it in another greenlet to end the program",
                    type(error).__name__,
                )


_shared: SharedLoop | None = None


def shared_loop() -> SharedLoop:
    """Return the shared loop of this process, started on first use.

    Raise ThreadStartError if it cannot be started.
    """
    global _shared
    if _shared is None or not _shared.is_usable:
        _shared = SharedLoop()  # before the start, which lets other greenlets run
        try:
            _shared.start()
        except BaseException:
            _shared = None
            raise
    return _shared


def threads_are_greenlets() -> bool:
    """True if gevent has replaced Python's threads."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


class ConsumerGreenlet(ConsumerThread):
    """A consumer thread that runs the engine as a task of the shared event loop."""

    def __init__(self, engine: EngineProtocol, name: str) -> None:
        self._name = name
        self._finished = threading.Event()
        super().__init__(engine, name)  # its thread is never started

    def _make_loop(self) -> tuple[asyncio.AbstractEventLoop, Callable[[], bool]]:
        shared = shared_loop()
        return shared.loop, shared.is_busy

    def start(self) -> None:
        """Start the task, and wait at most ``START_SECONDS`` for the engine to accept calls."""
        self._begun = True
        self._loop.call_soon_threadsafe(
            lambda: self._loop.create_task(self._run_task(), name=self._name)
        )
        self._started.wait(START_SECONDS)

    def _close_loop(self) -> None:
        pass  # all consumers share the event loop

    async def _run_task(self) -> None:
        with self._lock:
            main = self._create_main_task()
        try:
            with suppress(asyncio.CancelledError):
                await main
        finally:
            with self._lock:
                self.ended = True
            self._set_started()
            await self._end_calls()
            self._finished.set()

    @property
    def is_running(self) -> bool:
        """True if the task has begun and not ended."""
        return self._begun and not self._finished.is_set()

    def _join(self, timeout: float) -> bool:
        return not self._begun or self._finished.wait(timeout)


def check_patches() -> None:
    """Raise IllegalStateError if gevent has replaced Python's sockets, but not its threads."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or monkey.is_module_patched("threading"):
        return
    if monkey.is_module_patched("socket") or monkey.is_module_patched("select"):
        raise IllegalStateError(
            "the consumer cannot start: gevent has patched sockets but not threads, so the "
            "consumer thread cannot wait for brokers. Call gevent.monkey.patch_all() without "
            "thread=False, before other imports"
        )


def make_consumer_thread(engine: EngineProtocol, name: str) -> ConsumerThread:
    """Return the consumer thread, or a greenlet if gevent has replaced threads.

    Raise ThreadStartError, or IllegalStateError if gevent's patches do not fit.
    """
    check_patches()
    return (
        ConsumerGreenlet(engine, name) if threads_are_greenlets() else ConsumerThread(engine, name)
    )
