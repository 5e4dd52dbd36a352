"""The consumer thread of the sync API: it runs the engine in an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from kohort.consumer.driver._life import LastRequestAtExit
from kohort.consumer.driver._signal import CallResult, Outcome, ThreadSignal
from kohort.consumer.driver._thread_loop import new_event_loop
from kohort.consumer.engine._callback_queue import LockRelease
from kohort.errors import ConsumerClosedError, KafkaTimeoutError, ThreadStartError
from kohort.transport import OneShot

T = TypeVar("T")
FutureT = TypeVar("FutureT", bound=Outcome)

START_SECONDS = 1.0
"""Maximum seconds that the first call waits for the engine. Later calls have other limits."""


class EngineProtocol(Protocol):
    """The engine that the thread runs."""

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled. Call ``started`` when the engine accepts calls."""


class ConsumerThread:
    """A daemon thread with an asyncio event loop, which never delays the end of the process.

    anyio's blocking portal would delay it, because its thread is joined at exit. No method waits
    for the event loop longer than its limit.
    """

    def __init__(self, engine: EngineProtocol, name: str) -> None:
        self._engine: EngineProtocol | None = engine
        self._thread = make_thread(name, self._run)
        self._loop, self.is_busy = self._make_loop()
        self._main: asyncio.Task[None] | None = None
        self._calls: dict[Outcome, asyncio.Task[None] | None] = {}
        """Calls without a result yet. The code that removes a future sets its result."""
        # Calls do not run in the context of the caller, which may say that it runs on trio.
        self._context = contextvars.Context()
        # An interrupt in a method of threading.Event may leave its lock acquired.
        self._started = ThreadSignal()
        self._engine_started = OneShot()
        self._lock_release = LockRelease()
        self._begun = False
        self._stopping = False
        self.ended = False
        """True if the engine has ended or cannot start, so that calls are rejected."""
        # It is held while calls are queued, so that none is added after the last check of them.
        # It is reentrant, because a signal handler may interrupt another call of its thread.
        self._lock = threading.RLock()

    def _make_loop(self) -> tuple[asyncio.AbstractEventLoop, Callable[[], bool]]:
        return new_event_loop()

    def start(self) -> None:
        """Start the thread, and wait at most ``START_SECONDS`` for the engine to accept calls.

        Raises ThreadStartError if the system refuses a thread. After that, and after any other
        error of a thread that did not begin, nothing runs and :attr:`ended` is True.
        """
        try:
            start_thread(self._thread)
        except BaseException:
            self.end_unstarted()
            raise
        self._started.wait(START_SECONDS)

    def end_unstarted(self) -> None:
        """End this object after an error of :meth:`start`, unless the thread has begun."""
        with self._lock:  # Ctrl-C may come after the thread has begun
            if self._begun:
                return
            self.ended = True
        self._close_loop()

    def _close_loop(self) -> None:
        self._loop.close()

    def _run(self) -> None:
        with self._lock:
            if self.ended:
                return
            self._begun = True
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            with self._lock:
                main = self._create_main_task()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(main)
        finally:
            with self._lock:
                self.ended = True
            self._set_started()
            loop.run_until_complete(self._end_calls())
            loop.run_until_complete(loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            loop.close()

    def _create_main_task(self) -> asyncio.Task[None]:
        """Create the engine's task, which then holds the only reference to the engine."""
        engine, self._engine = self._engine, None
        assert engine is not None
        self._main = self._loop.create_task(engine.run(self._set_started))
        if self._stopping:
            self._main.cancel()
        return self._main

    def _set_started(self) -> None:
        self._engine_started.set()
        self._started.notify()

    async def _end_calls(self) -> None:
        await asyncio.sleep(0)  # let queued calls begin, so that they can be cancelled
        tasks = [task for task in self._calls.values() if task is not None]
        if self._main is not None:
            tasks.append(self._main)  # SystemExit in a callback ends the loop, not the engine
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail_calls()

    def call_soon(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the engine's event loop. Drop it if the engine has ended."""
        with self._lock:
            if not self.ended:
                self._loop.call_soon_threadsafe(action, context=self._context)

    def yield_to_caller(self) -> None:
        """Release the interpreter's lock for the time that the caller's thread takes to wake up.

        Otherwise the caller would wait until the engine's next system call. The event loop is
        blocked meanwhile.
        """
        self._lock_release.release()

    def call(self, function: Callable[[], Awaitable[T]]) -> CallResult[T]:
        """Await ``function()`` in the engine's event loop and return its result for the caller."""
        return self.call_into(CallResult(), function)

    def call_into(self, future: FutureT, function: Callable[[], Awaitable[Any]]) -> FutureT:
        """Await ``function()`` in the engine's event loop, and set its result in the future."""
        with self._lock:
            self._calls[future] = None
            if not self.ended:
                self._loop.call_soon_threadsafe(
                    self._start_call, function, future, context=self._context
                )
                return future
        self._fail_call(future)
        return future

    def cancel_call(self, future: Outcome) -> None:
        """Cancel a call whose caller no longer waits, as soon as the event loop runs."""
        if not future.cancel():
            self.call_soon(partial(self._cancel, future))

    def _cancel(self, future: Outcome) -> None:
        task = self._calls.get(future)
        if task is not None:
            task.cancel()

    def _start_call(self, function: Callable[[], Awaitable[Any]], future: Outcome) -> None:
        with self._lock:
            if future in self._calls:
                self._calls[future] = self._loop.create_task(self._run_call(function, future))

    async def _run_call(self, function: Callable[[], Awaitable[T]], future: Outcome) -> None:
        # The call is removed meanwhile, so that no other thread sets the future. The lock is not
        # held, because an interrupt in a method of the future may leave its own lock acquired.
        if not self._claim(future) or not future.set_running_or_notify_cancel():
            return
        with self._lock:
            self._calls[future] = asyncio.current_task()
        try:
            if not self._engine_started.is_set:
                await self._engine_started.wait()
            result = await function()
        except asyncio.CancelledError:
            self._fail_call(future)
        except BaseException as error:
            if self._claim(future):
                future.set_exception(error)
        else:
            if self._claim(future):
                future.set_result(result)
        finally:
            del future  # its exception refers to this frame

    def _claim(self, future: Outcome) -> bool:
        """Remove a call. Return True to the one caller that must set its result."""
        with self._lock:
            if future not in self._calls:
                return False
            del self._calls[future]
            return True

    def _fail_calls(self) -> None:
        for future in list(self._calls):
            self._fail_call(future)

    def _fail_call(self, future: Outcome) -> None:
        if self._claim(future) and (future.running() or future.set_running_or_notify_cancel()):
            future.set_exception(ConsumerClosedError("the consumer is closed"))

    def timeout_error(self, seconds: float) -> KafkaTimeoutError:
        """Return the error of a call to which this thread did not respond."""
        return thread_timeout(seconds)

    @property
    def is_running(self) -> bool:
        """True if the thread runs."""
        return self._thread.is_alive()

    def stop(self, timeout: float) -> bool:
        """End the engine and wait at most ``timeout`` seconds for the thread.

        Return True if the thread ended. Calls without a result fail in any case.
        """
        self.request_stop()
        ended = self._join(timeout)
        self._fail_calls()
        return ended

    def _join(self, timeout: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _leave_at_exit(self) -> LastRequestAtExit:
        """Wait for a stopped thread, whose engine leaves the group."""
        return LastRequestAtExit(wait=self._join)

    def request_stop(self) -> None:
        """End the engine without a wait."""
        with self._lock:
            self._stopping = True
            if self._main is not None:
                self.call_soon(self._main.cancel)


def thread_timeout(seconds: float) -> KafkaTimeoutError:
    """Return the error of a call to which the consumer thread did not respond."""
    return KafkaTimeoutError(
        f"the consumer thread did not respond within {seconds:.1f} s: blocking code runs in its "
        "event loop, or the process gets no CPU time. Repeat the call, or close the consumer"
    )


def make_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Return a daemon thread that is not started.

    Raise ThreadStartError in a subinterpreter without threads.
    """
    try:
        return threading.Thread(target=run, name=name, daemon=True)
    except RuntimeError as error:  # in a subinterpreter
        raise _not_started(error) from error


def start_thread(thread: threading.Thread) -> None:
    """Start a thread, or raise ThreadStartError if the system or the interpreter refuses it."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise _not_started(error) from error


def _not_started(error: BaseException) -> ThreadStartError:
    return ThreadStartError(
        f"the consumer thread did not start: {error}. Lower the number of threads or raise the "
        "system's limit. While the interpreter exits, no threads can be started. In a "
        "subinterpreter without threads, use AsyncKafkaConsumer"
    )
