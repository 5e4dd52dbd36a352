"""The lifecycle of AsyncKafkaConsumer, from its first awaited call to close()."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import wait
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer.api import _arguments
from kohort.consumer.api._base import leave_timeout
from kohort.consumer.api._plans import Plan, RequestPlans
from kohort.consumer.driver._async_callbacks import AsyncCallbacks
from kohort.consumer.driver._background_task import (
    BackgroundTask,
    event_loop,
    loop_clock,
    make_background_task,
)
from kohort.consumer.driver._callback_runner import CallbackRunner
from kohort.consumer.driver._iteration_buffer import YIELD_SECONDS
from kohort.consumer.driver._signal import TaskSignal
from kohort.consumer.driver._state import (
    CloseRequest,
    ConsumerState,
    LastRequestAtExit,
    leave_at_exit,
)
from kohort.consumer.engine._engine import Engine
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

NO_COMMIT = CloseRequest(autocommit=False, timeout=CLOSE_TIMEOUT, leave_group=None)


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class AsyncLifecycle(RequestPlans):
    """The methods of AsyncKafkaConsumer that start, use and end its background task."""

    _asynchronous = True
    _close_hint = "await close(), or use an async with block"

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self._background_task: BackgroundTask | None = None
        self._clock = anyio.current_time
        self._started = anyio.Event()
        """The end of STARTING and ABORTING. It is set before the first start."""
        self._started.set()
        self._ended = anyio.Event()
        """The end of ABORTING, RESETTING and CLOSING."""
        self._yield_at = self._run_until = -math.inf
        engine = Engine(config, notify=self._signal.notify, clock=anyio.current_time)
        self._prepare(config, engine, topics)
        self._callbacks = AsyncCallbacks(config, self._life, self._signal, self._close_pending)
        self._serve_callbacks()

    def _serve_callbacks(self) -> None:
        self._callback_runner = CallbackRunner(self._engine, acall_listener)
        self._callback_runner.connect(_call, weak_callback(self._callbacks.call))
        self._callbacks.serve(self._engine, self._callback_runner)

    # -- start and close ----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster and, if subscribed, wait for the first assignment.

        It also waits for positions, so that no record produced later is missed. It waits for them,
        and for topics that are being created, at most ``request_timeout_ms``. Under the consumer
        protocol, a member without partitions waits for two heartbeat intervals of the brokers, 10 s
        by default. Other members may release partitions in that time. The wait ends when the
        coordinator has assigned all partitions to other members. A call of start() is optional: the
        first call that sends a request starts the consumer without these waits.

        Raises NoBrokersAvailable if no bootstrap server was reachable for ``bootstrap_timeout_ms``,
        and SecurityError if all of them reject TLS or the login. Raises the error that ended the
        group membership, for example GroupAuthorizationFailedError. You can call it again after an
        error. ``async with`` calls start(), but leaves errors of the group to the first poll(). On
        trio, AsyncKafkaConsumer needs ``async with``.
        """
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self._life.check_usable()
        if self._background_task is not None:
            self._check_loop()
            return
        root = await self._start_task(in_block=in_block)
        try:
            await self._wait_until_started(in_block=in_block)
        except BaseException:
            try:
                await self._undo_start(root, ConsumerState.RESETTING)
            finally:
                await root.leave_block()
            raise

    async def _start_task(self, *, in_block: bool) -> BackgroundTask:
        """Start the background task and wait until the engine accepts calls."""
        root = self._background_task = make_background_task(in_block=in_block)
        self._life.move(ConsumerState.STARTING)
        self._callbacks.use(root)
        self._life.loop, self._life.pid = event_loop(), os.getpid()
        self._clock = self._engine.callback_queue.clock = loop_clock(self._life.loop)
        self._record_run.set_clock(self._clock)
        started = self._started = anyio.Event()
        try:
            await root.start(self._engine.run)
        except BaseException:
            try:
                await self._undo_start(root, ConsumerState.ABORTING)
            finally:
                await root.leave_block()
            raise
        else:
            if self._life.state is ConsumerState.STARTING:  # otherwise another task closed it
                self._life.move(ConsumerState.RUNNING)
                leave_at_exit(self)
        finally:
            started.set()
        return root

    async def _ensure_started(self) -> None:
        """Start the background task for the first awaited call, without any other wait."""
        self._life.check_usable()
        while self._background_task is None or not self._started.is_set():
            if not self._started.is_set():
                self._check_loop()
                await self._started.wait()
            else:
                await self._start_task(in_block=False)
            self._life.check_usable()
        self._check_loop()

    async def _call(self, plan: Plan[T]) -> T:
        await self._ensure_started()
        self._engine.check_running()
        return await plan.function()

    async def _undo_start(self, root: BackgroundTask, undoing: ConsumerState) -> None:
        """Restore the state before start(), with the same subscription or assignment."""
        if self._life.is_ending:  # another task closed it meanwhile
            await self._close(NO_COMMIT)
            return
        self._life.move(undoing)
        ended = self._ended = anyio.Event()
        self._signal.notify()
        try:
            await self._end_failed_start(root)
        finally:
            self._replace_engine()
            self._life.move(ConsumerState.NEW)
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
        self._engine.group_adapter.has_listener = old.group_adapter.has_listener
        self._engine.callback_queue.is_wakeup_requested = old.callback_queue.is_wakeup_requested
        self._serve_callbacks()
        self._callback_runner.listener = listener
        self._background_task = self._life.loop = self._life.pid = None

    async def _wait_until_started(self, *, in_block: bool) -> None:
        """Wait for the metadata and the first assignment. poll() raises later errors.

        In a block it also raises errors of the group, because the block may outlive them.
        """
        engine = self._engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self._life.check_usable()  # another task closed it meanwhile
            raise
        # The first poll should not raise an error of an outage that is over.
        engine.errors.drop(NoBrokersAvailable)
        engine.errors.drop(SecurityError)
        if not engine.subscription.is_subscribed and not engine.subscription.assigned():
            return
        from kohort.consumer.driver._startup import StartupWait

        starting = StartupWait(engine.parts, lambda: engine.has_first_assignment)
        async with self._polling("start()"):
            while True:
                event = self._signal.event()
                await self._callbacks.run()
                self._check_open()
                engine.check_running()
                if not in_block:
                    engine.errors.raise_group_failure()
                if starting.is_done() or engine.errors.waiting or self._life.close_request:
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
        await self._close(CloseRequest(autocommit, timeout, leave_group))

    async def _close_pending(self) -> None:
        assert self._life.close_request is not None
        await self._close(self._life.close_request)

    async def _close(self, request: CloseRequest) -> None:
        life = self._life
        self._engine.subscription.wake_up.set()
        if life.is_closed or not life.is_of_this_process:
            life.move(ConsumerState.CLOSED)
            return
        if self._background_task is None:
            life.move(ConsumerState.CLOSED)
            self._close_deserializers()
            return
        if self._has_loop_ended():
            life.move(ConsumerState.CLOSED)
            self._callback_runner.abandon()
            self._close_deserializers()
            return
        self._check_loop()
        if self._callbacks.is_inside:
            life.close_request = request
            return
        if life.is_ending:
            await self._ended.wait()
            if not life.is_closed:  # a failed start() was being undone
                await self._close(request)
            return
        life.move(ConsumerState.CLOSING)
        ended = self._ended = anyio.Event()
        self._signal.notify()
        try:
            await self._close_now(self._background_task, request)
        finally:
            ended.set()

    async def _close_now(self, root: BackgroundTask, request: CloseRequest) -> None:
        error: KafkaError | None = None
        limit = leave_timeout(request.timeout)
        deadline = anyio.current_time() + limit
        if not (self._life.close_request or self._life.left_with_error):
            self._engine.auto_commit.note_consumed()
        try:
            if root.is_alive:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    with anyio.move_on_after(limit / 2):
                        await self._await_commits()
                    reason = "the consumer was closed"
                    error = await self._leave(
                        reason, request.autocommit, deadline, request.leave_group
                    )
        finally:
            self._life.move(ConsumerState.CLOSED)
            self._signal.notify()
            await root.stop()
            self._callback_runner.abandon()
            self._callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    async def _await_commits(self) -> None:
        """Wait for the commits of commit_async()."""
        commits = self._engine.offset_requests.futures
        while commits:
            event = self._signal.event()
            if commits:
                await event.wait()

    async def _leave(
        self, reason: str, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        await self._callbacks.enter_callback()
        # A __del__ method may start a task that stops the consumer. The garbage collector clears
        # weak references before it calls __del__, so they are set again.
        self._callback_runner.connect(_call, weak_callback(self._callbacks.call))
        try:
            return await self._callback_runner.leave(
                reason, autocommit, deadline, leave_group=leave_group
            )
        finally:
            self._callbacks.leave_callback()

    async def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, and remove all topics.

        It takes at most 5 seconds. It also removes the partitions of assign(). Raises
        RebalanceListenerError.
        """
        self._life.check_usable()
        if self._background_task is None:
            self._engine.subscription.unsubscribe()
            return
        error: KafkaError | None = None
        async with self._polling("unsubscribe()"):
            self._engine.check_running()
            self._life.is_unsubscribing = True
            deadline = anyio.current_time() + CLOSE_TIMEOUT
            try:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    error = await self._leave("the consumer unsubscribed", True, deadline)
            finally:
                if self._life.is_unsubscribing:  # otherwise subscribe() was called meanwhile
                    self._life.is_unsubscribing = False
                    self._engine.subscription.unsubscribe()
                self._engine.finish_leave()
        if error is not None:
            raise error

    def _leave_at_exit(self) -> LastRequestAtExit | None:
        """Leave the group in the event loop if it runs in another thread, otherwise in a new one.

        A ``connect`` hook may belong to the ended loop, so it is not called.
        """
        loop, life, engine = self._life.loop, self._life, self._engine
        if life.is_ending or not life.is_of_this_process:
            return None
        if not isinstance(loop, asyncio.AbstractEventLoop):
            return None  # trio's block has closed the consumer
        if loop.is_running():
            future = asyncio.run_coroutine_threadsafe(engine.leave_at_once(), loop)
            return LastRequestAtExit(wait=lambda seconds: wait([future], seconds))
        if self._config.connect is not None:
            return None
        return LastRequestAtExit(send=lambda: engine.leave_at_once(engine.cluster.request_alone))

    async def __aenter__(self) -> Self:
        await self._start(in_block=True)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        try:
            self._life.left_with_error = exc_type is not None
            await self._close(CloseRequest(True, CLOSE_TIMEOUT, None))
        finally:
            if self._background_task is not None:
                await self._background_task.leave_block()

    def __del__(self) -> None:
        if self._is_finalizing():
            return
        root = getattr(self, "_background_task", None)
        if root is not None and not self._life.is_closed and self._life.is_of_this_process:
            root.abandon()
            self._warn_unclosed()  # last: with "python -W error" it raises

    @asynccontextmanager
    async def _polling(self, what: str) -> AsyncIterator[None]:
        """Run the body as a poll: it counts as activity, and callbacks may run in it."""
        await self._ensure_started()
        callbacks, life = self._callbacks, self._life
        callbacks.check_not_inside(what)
        callbacks.enter_poll()
        try:
            self._engine.auto_commit.note_consumed()
            yield
        finally:
            callbacks.leave_poll()
            if life.close_request and not life.is_closed and not callbacks.is_running:
                await self._close_pending()

    async def _yield_to_loop(self) -> None:
        """Let the event loop run once. A cancelled task raises here."""
        await checkpoint()
        self._yield_at = self._clock() + YIELD_SECONDS

    def _has_loop_ended(self) -> bool:
        """Return True if the consumer's event loop has ended."""
        return event_loop() is not self._life.loop and not (
            self._background_task and self._background_task.is_alive
        )

    def _check_open(self) -> None:
        if self._life.is_ending:
            raise ConsumerClosedError("the consumer was closed")

    def _check_loop(self) -> None:
        if event_loop() is not self._life.loop:
            raise IllegalStateError(
                "the consumer cannot be used here: it was started in another event loop. Await its "
                "methods there, or create a new consumer here"
            )
