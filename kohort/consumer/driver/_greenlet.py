"""The consumer thread in a process whose threads are gevent's greenlets."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from kohort._greenlets import shared_loop, threads_are_greenlets
from kohort.consumer.driver._thread import START_SECONDS, ConsumerThread, EngineProtocol
from kohort.errors import IllegalStateError


class ConsumerGreenlet(ConsumerThread):
    """A consumer thread that runs the engine as a task of the shared event loop."""

    def __init__(self, engine: EngineProtocol, name: str) -> None:
        self._name = name
        self._finished = threading.Event()
        super().__init__(engine, name)  # its thread is never started

    def _make_loop(self) -> tuple[asyncio.AbstractEventLoop, Callable[[], bool]]:
        return shared_loop().loop, lambda: False  # while the caller runs, the loop waits

    def start(self) -> None:
        """Start the task, and wait at most ``START_SECONDS`` for the engine to accept calls."""
        self._begun = True
        self._loop.call_soon_threadsafe(
            lambda: self._loop.create_task(self._run_task(), name=self._name),
            context=self._context,
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
