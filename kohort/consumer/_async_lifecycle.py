"""The asynchronous face from start() to stop(): its task, whose turn it is, and the callbacks."""

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
from kohort.consumer._background_task import Root, event_loop, loop_clock, make_background_task
from kohort.consumer._base import leaving_seconds
from kohort.consumer._callback_runner import CallbackRunner
from kohort.consumer._drain_size import TURN_SECONDS
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
from kohort.listeners import acall_listener
from kohort.transport import weak_callback

T = TypeVar("T")


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class AsyncLifecycle(AsyncCallbacks):
    """Everything of AsyncKafkaConsumer that is not about records, positions and offsets."""

    _asynchronous = True
    _how_to_close = "await stop(), or use an async with block"

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self._root: Root | None = None
        self._loop: Any = None
        self._clock = anyio.current_time
        self._set_up_callbacks()
        self._stopping: anyio.Event | None = None
        self._pending_stop = False
        self._leave_group: bool | None = None
        self._pollers = 0
        self._turn_at = self._run_until = -math.inf
        engine = Engine(config, notify=self._signal.notify, clock=anyio.current_time)
        self._prepare(config, engine, topics)
        self._listen_for_work(engine)
        self._callback_runner = self._make_performer()

    def _make_performer(self) -> CallbackRunner:
        performer = CallbackRunner(self._engine, acall_listener)
        performer.connect(_call, weak_callback(self._serve))
        return performer

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach the cluster and, if subscribed in a group, wait for the first assignment.

        Also wait for positions, so that nothing that is produced later is missed; for this, and for
        topics that are just being created, ``request_timeout_ms`` at most.
        NoBrokersAvailable when no bootstrap server was reachable for ``bootstrap_timeout_ms``.
        A SecurityError at once when every bootstrap server refuses TLS or the login.
        After an error, and when it was cancelled, it may be called again. On trio use
        ``async with``: there a task belongs to the block that started it.
        """
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self._check_usable()
        if self._root is not None:
            self._check_loop()
            return
        root = self._root = make_background_task(in_block=in_block)
        self._loop, self._pid = event_loop(), os.getpid()
        self._clock = self._engine.callback_queue.clock = loop_clock(self._loop)
        self._record_run.set_clock(self._clock)
        try:
            await root.start(self._engine.run)
            await self._begin()
        except BaseException:
            try:
                await self._take_back_start(root)
            finally:
                await root.leave_block()
            raise

    async def _take_back_start(self, root: Root) -> None:
        """Be as before start(): what is subscribed to or assigned stays, and nothing runs."""
        if self._closed or self._stopping is not None:  # another task stopped it meanwhile
            await self._stop(autocommit=False)
            return
        over = self._stopping = anyio.Event()
        self._signal.notify()
        try:
            await self._end_start(root)
        finally:
            self._renew()
            self._stopping = None
            over.set()

    async def _end_start(self, root: Root) -> None:
        limit = leaving_seconds(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        try:
            if root.alive and self._engine.subscribed:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    await self._leave("the consumer did not start", False, deadline)
        finally:
            await root.stop()
            self._callback_runner.abandon()

    def _renew(self) -> None:
        """A core runs once: another one, with the same subscription and listener."""
        old, listener = self._engine, self._callback_runner.listener
        old.subscription.forget_fetched()
        self._engine = Engine(
            self._config,
            notify=self._signal.notify,
            clock=anyio.current_time,
            subscription=old.subscription,
        )
        self._listen_for_work(self._engine)
        self._engine.has_listener = old.has_listener
        self._engine.callback_queue.woken = old.callback_queue.woken
        self._callback_runner = self._make_performer()
        self._callback_runner.listener = listener
        self._root = self._loop = self._pid = None

    async def _begin(self) -> None:
        """Wait for the metadata and the first assignment; what goes wrong later, getmany raises."""
        engine = self._engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self._check_usable()  # another task stopped it meanwhile
            raise
        # Somebody who polls should not hear of an outage that is over.
        engine.callback_queue.forget(NoBrokersAvailable)
        engine.callback_queue.forget(SecurityError)
        if not engine.subscribed and not engine.subscription.assigned():
            return
        starting = StartupWait(engine)
        async with self._polling("start()"):
            while True:
                event = self._signal.event()
                await self._perform()
                self._check_open()
                engine.check_running()
                if starting.done() or engine.callback_queue.errors or self._pending_stop:
                    return
                with anyio.move_on_after(starting.seconds):
                    await event.wait()

    def wakeup(self) -> None:
        """End getmany(), getone() or iteration with WakeupError; if none waits, the next of them.

        From any task, any thread, or a signal handler. Nothing is lost. Where several tasks wait,
        one of them is told. What else waits is ended by cancelling it.
        """
        self._engine.callback_queue.wake()
        if self._root is not None:
            self._root.call_soon(self._signal.notify)

    async def stop(self, *, leave_group: bool | None = None) -> None:
        """Commit (if automatic), call the listener, leave the group; 5 s at most, may be repeated.

        From inside a listener it returns at once, and the consumer stops when that has returned.
        ``leave_group`` is as for :meth:`KafkaConsumer.close`.
        """
        await self._stop(autocommit=True, leave_group=leave_group)

    async def _stop(self, *, autocommit: bool, leave_group: bool | None = None) -> None:
        self._engine.subscription.wake_up.set()
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._root is None:
            self._closed = True
            self._close_deserializers()
            return
        if self._gone():
            self._closed = True
            self._callback_runner.abandon()
            self._close_deserializers()
            return
        self._check_loop()
        if self._performing == anyio.get_current_task().id:
            self._pending_stop = True
            self._leave_group = leave_group
            return
        if self._stopping is not None:
            await self._stopping.wait()
            if not self._closed:  # what was going on was the end of a start() in vain
                await self._stop(autocommit=autocommit, leave_group=leave_group)
            return
        self._stopping = anyio.Event()
        self._signal.notify()
        try:
            await self._stop_root(self._root, autocommit, leave_group)
        finally:
            self._stopping.set()

    async def _stop_root(self, root: Root, autocommit: bool, leave_group: bool | None) -> None:
        error: KafkaError | None = None
        limit = leaving_seconds(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        if not (self._pending_stop or self._unfinished):
            self._engine.note_consumed()
        try:
            if root.alive:
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
        while self._performing is not None:
            await self._signal.event().wait()
        self._performing = anyio.get_current_task().id
        # A __del__ method may start a task that stops the consumer, and the garbage collector
        # clears weak references before it calls that.
        self._callback_runner.connect(_call, weak_callback(self._serve))
        try:
            return await self._callback_runner.leave(
                reason, autocommit, deadline, leave_group=leave_group
            )
        finally:
            self._performing = None
            self._signal.notify()

    async def __aenter__(self) -> Self:
        await self._start(in_block=True)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self._unfinished = exc_type is not None
            await self._stop(autocommit=True)
        finally:
            if self._root is not None:
                await self._root.leave_block()

    def __del__(self) -> None:
        root = getattr(self, "_root", None)
        if root is not None and not self._closed and self._pid == os.getpid():
            root.abandon()
            self._warn_unclosed()  # last: with "python -W error" it raises

    @asynccontextmanager
    async def _polling(self, what: str) -> AsyncIterator[None]:
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
        self._check_started()
        self._check_not_inside(what)
        self._engine.callback_queue.entered_poll()
        self._pollers += 1
        try:
            self._engine.note_consumed()
            yield
        finally:
            self._pollers -= 1
            if not self._pollers:
                self._engine.callback_queue.left_poll()
                self._perform_unpolled()
            if self._pending_stop and not self._closed and self._performing is None:
                await self._stop(autocommit=True, leave_group=self._leave_group)

    async def _give_turn(self) -> None:
        """Let the event loop run once. Raises here if the calling task is cancelled."""
        await checkpoint()
        self._turn_at = self._clock() + TURN_SECONDS

    def _check_started(self) -> None:
        self._check_usable()
        if self._root is None:
            raise IllegalStateError("not started: use 'async with', or await start() first")
        self._check_loop()

    def _check_running(self) -> None:
        self._check_started()
        self._engine.check_running()

    def _gone(self) -> bool:
        """Its event loop has ended, and everything that it ran."""
        return event_loop() is not self._loop and not (self._root and self._root.alive)

    def _check_open(self) -> None:
        if self._closed or self._stopping is not None:
            raise ConsumerClosedError("the consumer was stopped")
