"""The consumer thread of a process whose threads are gevent's greenlets.

asyncio knows one running event loop for each thread of the system, and greenlets share one. So all
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
    """An event loop in a greenlet, which gevent makes of a thread."""

    def __init__(self) -> None:
        self.loop, self.is_busy = new_event_loop()
        self._pid = os.getpid()
        self._thread = make_thread("kohort-heartbeats", self._run)

    def start(self) -> None:
        """Start the greenlet. ThreadStartError."""
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
                # Only these two leave the event loop. The other consumers still need it.
                logger.exception(
                    "a callback in kohort's event loop raised %s, which is ignored there: end the "
                    "program from another greenlet",
                    type(error).__name__,
                )


_shared: SharedLoop | None = None


def shared_loop() -> SharedLoop:
    """The one of this process, made when the first consumer needs it. ThreadStartError."""
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
    """The engine as a task of the shared event loop."""

    def __init__(self, engine: EngineProtocol, name: str) -> None:
        self._name = name
        self._finished = threading.Event()
        super().__init__(engine, name)  # its thread is never started

    def _make_loop(self) -> tuple[asyncio.AbstractEventLoop, Callable[[], bool]]:
        shared = shared_loop()
        return shared.loop, shared.is_busy

    def start(self) -> None:
        """Start the task, and give the engine a moment to take calls."""
        self._begun = True
        self._loop.call_soon_threadsafe(
            lambda: self._loop.create_task(self._run_task(), name=self._name)
        )
        self._started.wait(START_SECONDS)

    def _close_loop(self) -> None:
        pass  # the event loop is of all consumers

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
        """The task has not ended yet."""
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
            "gevent has replaced Python's sockets but not its threads, so the consumer's thread "
            "cannot wait for the brokers. Call gevent.monkey.patch_all() without thread=False, "
            "before other imports"
        )


def make_consumer_thread(engine: EngineProtocol, name: str) -> ConsumerThread:
    """The consumer thread, as this process can have it. ThreadStartError, IllegalStateError."""
    check_patches()
    return (
        ConsumerGreenlet(engine, name) if threads_are_greenlets() else ConsumerThread(engine, name)
    )
