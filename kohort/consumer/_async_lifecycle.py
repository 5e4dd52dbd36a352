"""The lifecycle of AsyncKafkaConsumer, from its first awaited call to close()."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer import _arguments
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
from kohort.consumer._plans import Plan, RequestPlans
from kohort.consumer._signal import TaskSignal
from kohort.errors import (
    ConsumerClosedError,
    KafkaError,
    NoBrokersAvailable,
    SecurityError,
)
from kohort.listeners._dispatch import acall_listener
from kohort.transport import weak_callback

T = TypeVar("T")


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class AsyncLifecycle(AsyncCallbacks, RequestPlans):
    """The methods of AsyncKafkaConsumer that start, use and end its background task."""

    _asynchronous = True
    _close_hint = "await close(), or use an async with block"

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self._background_task: BackgroundTask | None = None
        self._loop: Any = None
        self._clock = anyio.current_time
        self._set_up_callbacks()
        self._closing: anyio.Event | None = None
        self._starting: anyio.Event | None = None
        self._pending_close = False
        self._close_options: tuple[bool, float, bool | None] = (True, CLOSE_TIMEOUT, None)
        self._active_polls = 0
        self._commits = set()
        self._yield_at = self._run_until = -math.inf
        engine = Engine(config, notify=self._signal.notify, clock=anyio.current_time)
        self._prepare(config, engine, topics)
        self._watch_callbacks(engine)
        self._callback_runner = self._make_callback_runner()

    def _make_callback_runner(self) -> CallbackRunner:
        runner = CallbackRunner(self._engine, acall_listener)
        runner.connect(_call, weak_callback(self._call_with_callbacks))
        return runner

    # -- start and close ----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, if subscribed, wait for the first assignment.

        It also waits for positions, so that no record produced later is missed. It waits for them,
        and for topics that are being created, at most ``request_timeout_ms``. A call of start() is
        optional: the first call that sends a request starts the consumer without these waits.

        Raises NoBrokersAvailable if no bootstrap server was reachable for ``bootstrap_timeout_ms``,
        and SecurityError if all of them reject TLS or the login. Raises the error that ended the
        group membership, for example GroupAuthorizationFailedError. You can call it again after an
        error. ``async with`` calls start(), but leaves errors of the group to the first poll(). On
        trio, AsyncKafkaConsumer needs ``async with``.
        """
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self._check_usable()
        if self._background_task is not None:
            self._check_loop()
            return
        root = await self._start_task(in_block=in_block)
        try:
            await self._wait_until_started(in_block=in_block)
        except BaseException:
            try:
                await self._undo_start(root)
            finally:
                await root.leave_block()
            raise

    async def _start_task(self, *, in_block: bool) -> BackgroundTask:
        """Start the background task and wait until the engine accepts calls."""
        root = self._background_task = make_background_task(in_block=in_block)
        self._loop, self._pid = event_loop(), os.getpid()
        self._clock = self._engine.callback_queue.clock = loop_clock(self._loop)
        self._record_run.set_clock(self._clock)
        starting = self._starting = anyio.Event()
        try:
            await root.start(self._engine.run)
        except BaseException:
            try:
                await self._undo_start(root)
            finally:
                await root.leave_block()
            raise
        finally:
            self._starting = None
            starting.set()
        return root

    async def _ensure_started(self) -> None:
        """Start the background task for the first awaited call, without any other wait."""
        self._check_usable()
        while self._background_task is None or self._starting is not None:
            if self._starting is not None:
                self._check_loop()
                await self._starting.wait()
            else:
                await self._start_task(in_block=False)
            self._check_usable()
        self._check_loop()

    async def _call(self, plan: Plan[T]) -> T:
        await self._ensure_started()
        self._engine.check_running()
        return await plan.function()

    async def _undo_start(self, root: BackgroundTask) -> None:
        """Restore the state before start(), with the same subscription or assignment."""
        if self._closed or self._closing is not None:  # another task closed it meanwhile
            await self._close(autocommit=False)
            return
        ended = self._closing = anyio.Event()
        self._signal.notify()
        try:
            await self._end_failed_start(root)
        finally:
            self._replace_engine()
            self._closing = None
            ended.set()

    async def _end_failed_start(self, root: BackgroundTask) -> None:
        limit = leave_timeout(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        try:
            if root.is_alive and self._engine.subscription.is_subscribed:
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
        self._engine.group_adapter.has_listener = old.group_adapter.has_listener
        self._engine.callback_queue.is_wakeup_requested = old.callback_queue.is_wakeup_requested
        self._callback_runner = self._make_callback_runner()
        self._callback_runner.listener = listener
        self._background_task = self._loop = self._pid = None

    async def _wait_until_started(self, *, in_block: bool) -> None:
        """Wait for the metadata and the first assignment. poll() raises later errors.

        In a block it also raises errors of the group, because the block may outlive them.
        """
        engine = self._engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self._check_usable()  # another task closed it meanwhile
            raise
        # The first poll should not raise an error of an outage that is over.
        engine.errors.drop(NoBrokersAvailable)
        engine.errors.drop(SecurityError)
        if not engine.subscription.is_subscribed and not engine.subscription.assigned():
            return
        from kohort.consumer._startup import StartupWait

        starting = StartupWait(engine.parts, lambda: engine.has_first_assignment)
        async with self._polling("start()"):
            while True:
                event = self._signal.event()
                await self._run_callbacks()
                self._check_open()
                engine.check_running()
                if not in_block:
                    engine.errors.raise_group_failure()
                if starting.is_done() or engine.errors.waiting or self._pending_close:
                    return
                with anyio.move_on_after(starting.seconds):
                    await event.wait()

    def wakeup(self) -> None:
        """Let a waiting call raise WakeupError: poll() or iteration.

        It may be called from any thread and from a signal handler. If no call waits, the next one
        raises. KafkaConsumer also raises it in commit() and lookups; an interrupted commit() may
        still succeed. close() and unsubscribe() never raise it. No record is lost, so you can
        continue to poll. If several tasks wait, one of them raises.
        """
        self._engine.callback_queue.request_wakeup()
        if self._background_task is not None:
            self._background_task.call_soon(self._signal.notify)

    async def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        leave_group: bool | None = None,
    ) -> None:
        """Commit (if automatic), call the listener, leave the group, and end the consumer.

        It takes at most ``timeout_ms`` milliseconds, by default 5,000. Calling it again has no
        effect. Inside a listener, or in a signal handler that interrupts poll(), it returns
        immediately, and poll() closes the consumer before it returns.

        ``autocommit=False`` skips the automatic commit. ``leave_group=False`` keeps the membership
        until the session expires, so that a restart causes no rebalance. This is the default of
        static members, which set ``group_instance_id``. ``leave_group=True`` gives the partitions
        to other members immediately, and is the default of dynamic members (KIP-1092).

        Raises only RebalanceListenerError. If the thread of a KafkaConsumer does not respond, it
        logs a warning, and the group reassigns the partitions when the session expires.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 1000 * CLOSE_TIMEOUT)
        assert timeout is not None
        await self._close(autocommit=autocommit, timeout=timeout, leave_group=leave_group)

    async def _close(
        self,
        *,
        autocommit: bool,
        timeout: float = CLOSE_TIMEOUT,
        leave_group: bool | None = None,
    ) -> None:
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
            self._pending_close = True
            self._close_options = autocommit, timeout, leave_group
            return
        if self._closing is not None:
            await self._closing.wait()
            if not self._closed:  # a failed start() was being undone
                await self._close(autocommit=autocommit, timeout=timeout, leave_group=leave_group)
            return
        self._closing = anyio.Event()
        self._signal.notify()
        try:
            await self._close_now(self._background_task, autocommit, timeout, leave_group)
        finally:
            self._closing.set()

    async def _close_now(
        self, root: BackgroundTask, autocommit: bool, timeout: float, leave_group: bool | None
    ) -> None:
        error: KafkaError | None = None
        limit = leave_timeout(timeout)
        deadline = anyio.current_time() + limit
        if not (self._pending_close or self._left_with_error):
            self._engine.auto_commit.note_consumed()
        try:
            if root.is_alive:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    with anyio.move_on_after(limit / 2):
                        await self._await_commits()
                    reason = "the consumer was closed"
                    error = await self._leave(reason, autocommit, deadline, leave_group)
        finally:
            self._closed = True
            self._signal.notify()
            await root.stop()
            self._callback_runner.abandon()
            self._callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    async def _await_commits(self) -> None:
        """Wait for the commits of commit_async()."""
        while self._commits:
            event = self._signal.event()
            if self._commits:
                await event.wait()

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

    async def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, and remove all topics.

        It takes at most 5 seconds. It also removes the partitions of assign(). Raises
        RebalanceListenerError.
        """
        self._check_usable()
        if self._background_task is None:
            self._engine.subscription.unsubscribe()
            return
        error: KafkaError | None = None
        async with self._polling("unsubscribe()"):
            self._engine.check_running()
            self._is_unsubscribing = True
            deadline = anyio.current_time() + CLOSE_TIMEOUT
            try:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    error = await self._leave("the consumer unsubscribed", True, deadline)
            finally:
                if self._is_unsubscribing:  # otherwise subscribe() was called meanwhile
                    self._is_unsubscribing = False
                    self._engine.subscription.unsubscribe()
                self._engine.finish_leave()
        if error is not None:
            raise error

    async def __aenter__(self) -> Self:
        await self._start(in_block=True)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self._left_with_error = exc_type is not None
            await self._close(autocommit=True)
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
        await self._ensure_started()
        self._check_not_inside(what)
        self._engine.callback_queue.enter_poll()
        self._active_polls += 1
        try:
            self._engine.auto_commit.note_consumed()
            yield
        finally:
            self._active_polls -= 1
            if not self._active_polls:
                self._engine.callback_queue.leave_poll()
                self._start_unpolled()
            if self._pending_close and not self._closed and self._callback_task is None:
                await self._close_pending()

    async def _yield_to_loop(self) -> None:
        """Let the event loop run once. A cancelled task raises here."""
        await checkpoint()
        self._yield_at = self._clock() + YIELD_SECONDS

    def _has_loop_ended(self) -> bool:
        """Return True if the consumer's event loop has ended."""
        return event_loop() is not self._loop and not (
            self._background_task and self._background_task.is_alive
        )

    def _check_open(self) -> None:
        if self._closed or self._closing is not None:
            raise ConsumerClosedError("the consumer was closed")
