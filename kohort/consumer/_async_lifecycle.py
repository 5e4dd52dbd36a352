"""The lifecycle of AsyncKafkaConsumer, from start() to stop()."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer._async_callbacks import AsyncCallbacks
from kohort.consumer._background_task import (
    BackgroundTask,
    event_loop,
    loop_clock,
    make_background_task,
)
from kohort.consumer._base import leave_timeout
from kohort.consumer._callback_runner import CallbackRunner
from kohort.consumer._drain_size import YIELD_SECONDS
from kohort.consumer._engine import Engine
from kohort.consumer._signal import TaskSignal
from kohort.consumer._startup import StartupWait
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    KafkaError,
    NoBrokersAvailable,
    SecurityError,
)
from kohort.listeners._dispatch import acall_listener
from kohort.transport import weak_callback

T = TypeVar("T")


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class AsyncLifecycle(AsyncCallbacks):
    """The methods of AsyncKafkaConsumer that start, use and end its background task."""

    _asynchronous = True
    _close_hint = "await stop(), or use an async with block"

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self._background_task: BackgroundTask | None = None
        self._loop: Any = None
        self._clock = anyio.current_time
        self._set_up_callbacks()
        self._stopping: anyio.Event | None = None
        self._pending_stop = False
        self._leave_group: bool | None = None
        self._active_polls = 0
        self._yield_at = self._run_until = -math.inf
        engine = Engine(config, notify=self._signal.notify, clock=anyio.current_time)
        self._prepare(config, engine, topics)
        self._watch_callbacks(engine)
        self._callback_runner = self._make_callback_runner()

    def _make_callback_runner(self) -> CallbackRunner:
        runner = CallbackRunner(self._engine, acall_listener)
        runner.connect(_call, weak_callback(self._call_with_callbacks))
        return runner

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, if subscribed, wait for the first assignment.

        It also waits for positions, so that no record produced later is missed. It waits for them,
        and for topics that are being created, at most ``request_timeout_ms``.

        Raises NoBrokersAvailable if no bootstrap server was reachable for ``bootstrap_timeout_ms``,
        and SecurityError if all of them reject TLS or the login. You can call it again after an
        error or a cancellation. On trio use ``async with`` instead.
        """
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self._check_usable()
        if self._background_task is not None:
            self._check_loop()
            return
        root = self._background_task = make_background_task(in_block=in_block)
        self._loop, self._pid = event_loop(), os.getpid()
        self._clock = self._engine.callback_queue.clock = loop_clock(self._loop)
        self._record_run.set_clock(self._clock)
        try:
            await root.start(self._engine.run)
            await self._wait_until_started()
        except BaseException:
            try:
                await self._undo_start(root)
            finally:
                await root.leave_block()
            raise

    async def _undo_start(self, root: BackgroundTask) -> None:
        """Restore the state before start(), with the same subscription or assignment."""
        if self._closed or self._stopping is not None:  # another task stopped it meanwhile
            await self._stop(autocommit=False)
            return
        ended = self._stopping = anyio.Event()
        self._signal.notify()
        try:
            await self._stop_after_failed_start(root)
        finally:
            self._replace_engine()
            self._stopping = None
            ended.set()

    async def _stop_after_failed_start(self, root: BackgroundTask) -> None:
        limit = leave_timeout(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        try:
            if root.is_alive and self._engine.is_subscribed:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    await self._leave("the consumer did not start", False, deadline)
        finally:
            await root.stop()
            self._callback_runner.abandon()

    def _replace_engine(self) -> None:
        """Replace the engine, which can run only once. Keep the subscription and the listener."""
        old, listener = self._engine, self._callback_runner.listener
        old.subscription.forget_fetched()
        self._engine = Engine(
            self._config,
            notify=self._signal.notify,
            clock=anyio.current_time,
            subscription=old.subscription,
        )
        self._watch_callbacks(self._engine)
        self._engine.has_listener = old.has_listener
        self._engine.callback_queue.is_wakeup_requested = old.callback_queue.is_wakeup_requested
        self._callback_runner = self._make_callback_runner()
        self._callback_runner.listener = listener
        self._background_task = self._loop = self._pid = None

    async def _wait_until_started(self) -> None:
        """Wait for the metadata and the first assignment. getmany() raises later errors."""
        engine = self._engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self._check_usable()  # another task stopped it meanwhile
            raise
        # The first poll should not raise an error of an outage that is over.
        engine.callback_queue.drop_errors(NoBrokersAvailable)
        engine.callback_queue.drop_errors(SecurityError)
        if not engine.is_subscribed and not engine.subscription.assigned():
            return
        starting = StartupWait(engine)
        async with self._polling("start()"):
            while True:
                event = self._signal.event()
                await self._run_callbacks()
                self._check_open()
                engine.check_running()
                if starting.is_done() or engine.callback_queue.errors or self._pending_stop:
                    return
                with anyio.move_on_after(starting.seconds):
                    await event.wait()

    def wakeup(self) -> None:
        """Let getmany(), getone() or iteration raise WakeupError.

        It may be called from any task or thread and from a signal handler. If no call waits, the
        next one raises. If several tasks wait, one of them raises. No record is lost. To end other
        calls, cancel them.
        """
        self._engine.callback_queue.request_wakeup()
        if self._background_task is not None:
            self._background_task.call_soon(self._signal.notify)

    async def stop(self, *, leave_group: bool | None = None) -> None:
        """Commit (if automatic), call the listener, leave the group, and end the task.

        It takes at most 5 seconds. Calling it again has no effect. Inside a listener it returns
        immediately, and the consumer stops when the listener has returned. ``leave_group`` is as
        for :meth:`KafkaConsumer.close`. Raises RebalanceListenerError.
        """
        await self._stop(autocommit=True, leave_group=leave_group)

    async def _stop(self, *, autocommit: bool, leave_group: bool | None = None) -> None:
        self._engine.subscription.wake_up.set()
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._background_task is None:
            self._closed = True
            self._close_deserializers()
            return
        if self._has_loop_ended():
            self._closed = True
            self._callback_runner.abandon()
            self._close_deserializers()
            return
        self._check_loop()
        if self._callback_task == anyio.get_current_task().id:
            self._pending_stop = True
            self._leave_group = leave_group
            return
        if self._stopping is not None:
            await self._stopping.wait()
            if not self._closed:  # a failed start() was being undone
                await self._stop(autocommit=autocommit, leave_group=leave_group)
            return
        self._stopping = anyio.Event()
        self._signal.notify()
        try:
            await self._stop_task(self._background_task, autocommit, leave_group)
        finally:
            self._stopping.set()

    async def _stop_task(
        self, root: BackgroundTask, autocommit: bool, leave_group: bool | None
    ) -> None:
        error: KafkaError | None = None
        limit = leave_timeout(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        if not (self._pending_stop or self._left_with_error):
            self._engine.note_consumed()
        try:
            if root.is_alive:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    reason = "the consumer was stopped"
                    error = await self._leave(reason, autocommit, deadline, leave_group)
        finally:
            self._closed = True
            self._signal.notify()
            await root.stop()
            self._callback_runner.abandon()
            self._close_deserializers()
        if error is not None:
            raise error

    async def _leave(
        self, reason: str, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        while self._callback_task is not None:
            await self._signal.event().wait()
        self._callback_task = anyio.get_current_task().id
        # A __del__ method may start a task that stops the consumer. The garbage collector clears
        # weak references before it calls __del__, so they are set again.
        self._callback_runner.connect(_call, weak_callback(self._call_with_callbacks))
        try:
            return await self._callback_runner.leave(
                reason, autocommit, deadline, leave_group=leave_group
            )
        finally:
            self._callback_task = None
            self._signal.notify()

    async def __aenter__(self) -> Self:
        await self._start(in_block=True)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self._left_with_error = exc_type is not None
            await self._stop(autocommit=True)
        finally:
            if self._background_task is not None:
                await self._background_task.leave_block()

    def __del__(self) -> None:
        root = getattr(self, "_background_task", None)
        if root is not None and not self._closed and self._pid == os.getpid():
            root.abandon()
            self._warn_unclosed()  # last: with "python -W error" it raises

    @asynccontextmanager
    async def _polling(self, what: str) -> AsyncIterator[None]:
        """Run the body as a poll: it counts as activity, and callbacks may run in it."""
        self._check_started()
        self._check_not_inside(what)
        self._engine.callback_queue.enter_poll()
        self._active_polls += 1
        try:
            self._engine.note_consumed()
            yield
        finally:
            self._active_polls -= 1
            if not self._active_polls:
                self._engine.callback_queue.leave_poll()
                self._start_unpolled()
            if self._pending_stop and not self._closed and self._callback_task is None:
                await self._stop(autocommit=True, leave_group=self._leave_group)

    async def _yield_to_loop(self) -> None:
        """Let the event loop run once. A cancelled task raises here."""
        await checkpoint()
        self._yield_at = self._clock() + YIELD_SECONDS

    def _check_started(self) -> None:
        self._check_usable()
        if self._background_task is None:
            raise IllegalStateError(
                "the consumer is not started. Use 'async with', or await start() first"
            )
        self._check_loop()

    def _check_running(self) -> None:
        self._check_started()
        self._engine.check_running()

    def _has_loop_ended(self) -> bool:
        """Return True if the consumer's event loop has ended."""
        return event_loop() is not self._loop and not (
            self._background_task and self._background_task.is_alive
        )

    def _check_open(self) -> None:
        if self._closed or self._stopping is not None:
            raise ConsumerClosedError("the consumer was stopped")
