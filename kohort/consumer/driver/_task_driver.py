"""The driver of AsyncKafkaConsumer: its background task, and the waits of its callers.

The engine runs in a task of the caller's event loop, asyncio's or trio's. Several tasks may use the
consumer at once. Listeners run in a further task (see AsyncCallbacks), so that the cancellation of
a poll does not stop them half-way.
"""

from __future__ import annotations

import asyncio
import math
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import wait
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import checkpoint

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer.driver._async_callbacks import AsyncCallbacks
from kohort.consumer.driver._background_task import (
    BackgroundTask,
    event_loop,
    loop_clock,
    make_background_task,
)
from kohort.consumer.driver._callback_runner import CallbackRunner
from kohort.consumer.driver._commit_future import AsyncCommitFuture
from kohort.consumer.driver._delivery import CallDelivery, Chosen, Delivery, IterationDelivery
from kohort.consumer.driver._driver import CommitFunction, Driver, Plan, leave_timeout, make_engine
from kohort.consumer.driver._iteration_buffer import YIELD_SECONDS
from kohort.consumer.driver._life import (
    CloseRequest,
    ConsumerState,
    LastRequestAtExit,
    leave_at_exit,
)
from kohort.consumer.engine._engine import LeaveCause
from kohort.errors import (
    ConsumerClosedError,
    DeserializerNotReadyError,
    IllegalStateError,
    KafkaError,
)
from kohort.listeners._dispatch import acall_listener
from kohort.records import ConsumerRecord
from kohort.subscription import NO_GROUP
from kohort.transport import OneShot, TaskSignal, weak_callback
from kohort.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

REPEAT_SECONDS, LONGEST_REPEAT_SECONDS = 1.0, 8.0
"""Times after which an iteration without records raises its errors again, doubled each time."""

NO_COMMIT = CloseRequest(autocommit=False, timeout=CLOSE_TIMEOUT, leave_group=None)


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class TaskDriver(Driver):
    """The driver that runs the engine in a task."""

    asynchronous = True

    def __init__(self, config: ConsumerConfig) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self.background_task: BackgroundTask | None = None
        self._clock = anyio.current_time
        self._started = OneShot()
        """The end of STARTING and ABORTING. It is set before the first start."""
        self._started.set()
        self._ended = OneShot()
        """The end of ABORTING, RESETTING and CLOSING."""
        self._yield_at = self._run_until = -math.inf
        engine = make_engine(config, notify=self._signal.notify, clock=anyio.current_time)
        super().__init__(config, engine)
        driver = weakref.proxy(self)
        self._callbacks = AsyncCallbacks(
            config, self.life, self._signal, self._close_pending, lambda: driver.owner()
        )
        self._serve_callbacks()

    def _serve_callbacks(self) -> None:
        self.callback_runner = CallbackRunner(self.engine, acall_listener)
        self.callback_runner.connect(_call, weak_callback(self._callbacks.call))
        self._callbacks.serve(self.engine, self.callback_runner)

    # -- start and close ----------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and wait for the first assignment and for positions."""
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self.life.check_usable()
        if self.background_task is not None:
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
        root = self.background_task = make_background_task(self.life.what, in_block=in_block)
        self.life.move(ConsumerState.STARTING)
        self._callbacks.use(root)
        self.life.loop, self.life.pid = event_loop(), os.getpid()
        self._clock = self.engine.callback_queue.clock = loop_clock(self.life.loop)
        self.record_run.set_clock(self._clock)
        started = self._started = OneShot()
        try:
            await root.start(self.engine.run)
        except BaseException:
            try:
                await self._undo_start(root, ConsumerState.ABORTING)
            finally:
                await root.leave_block()
            raise
        else:
            if self.life.state is ConsumerState.STARTING:  # otherwise another task closed it
                self.life.move(ConsumerState.RUNNING)
                leave_at_exit(self)
        finally:
            started.set()
        return root

    async def _ensure_started(self) -> None:
        """Start the background task for the first awaited call, without any other wait."""
        self.life.check_usable()
        while self.background_task is None or not self._started.is_set:
            if not self._started.is_set:
                self._check_loop()
                await self._started.wait()
            else:
                await self._start_task(in_block=False)
            self.life.check_usable()
        self._check_loop()

    async def call(self, plan: Plan[T]) -> T:
        """Make the call, and return its result."""
        await self._ensure_started()
        self.engine.check_running()
        return await plan.function(self.engine, *plan.args)

    async def position(self, plan: Plan[int], partition: TopicPartition) -> int:
        """Look the position up, which returns at once if it is known."""
        return await self.call(plan)

    async def _undo_start(self, root: BackgroundTask, undoing: ConsumerState) -> None:
        """Restore the state before start(), with the same subscription or assignment."""
        if self.life.is_ending:  # another task closed it meanwhile
            await self.close(NO_COMMIT)
            return
        self.life.move(undoing)
        ended = self._ended = OneShot()
        self._signal.notify()
        try:
            await self._end_failed_start(root)
        finally:
            self._replace_engine()
            self.life.move(ConsumerState.NEW)
            ended.set()

    async def _end_failed_start(self, root: BackgroundTask) -> None:
        limit = leave_timeout(CLOSE_TIMEOUT)
        deadline = anyio.current_time() + limit
        try:
            if root.is_alive and self.engine.subscription.is_subscribed:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    await self._leave("failed", False, deadline)
        finally:
            await root.stop()
            self.callback_runner.abandon()

    def _replace_engine(self) -> None:
        """Replace the engine, which can run only once. Keep the subscription and the listener."""
        old, listener = self.engine, self.callback_runner.listener
        old.subscription.forget_fetched()
        self.engine = make_engine(
            self.config,
            notify=self._signal.notify,
            clock=anyio.current_time,
            subscription=old.subscription,
        )
        self.engine.iterated_timestamp = self.iteration_buffer.timestamp_at
        self.engine.offset_requests.observe = old.offset_requests.observe
        self.engine.group_adapter.has_listener = old.group_adapter.has_listener
        self.engine.auto_commit.is_enabled = old.auto_commit.is_enabled
        self.engine.callback_queue.is_wakeup_requested = old.callback_queue.is_wakeup_requested
        self._serve_callbacks()
        self.callback_runner.listener = listener
        self.background_task = self.life.loop = self.life.pid = None

    async def _wait_until_started(self, *, in_block: bool) -> None:
        """Wait for the metadata and the first assignment. poll() raises later errors.

        In a block it also raises errors of the group, because the block may outlive them.
        """
        engine = self.engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self.life.check_usable()  # another task closed it meanwhile
            raise
        # The first poll should not raise an error of an outage that is over.
        engine.errors.drop_outages()
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
                if starting.is_done() or engine.errors.waiting or self.life.close_request:
                    return
                await event.wait(starting.seconds)

    def wakeup(self) -> None:
        """Let a waiting call raise WakeupError. Any thread and signal handler may call it."""
        self.engine.callback_queue.request_wakeup()
        self.call_threadsafe(self._signal.notify)

    def call_threadsafe(self, action: Callable[[], object]) -> None:
        """Do as :meth:`call_soon` does, from any thread and signal handler."""
        background_task = self.background_task  # the loop's thread may end it meanwhile
        if background_task is not None:
            background_task.call_soon(action)

    async def _close_pending(self) -> None:
        assert self.life.close_request is not None
        await self.close(self.life.close_request)

    async def close(self, request: CloseRequest) -> None:
        """Leave the group and end the task, or let the running callback do so at its end."""
        life = self.life
        self.engine.subscription.wake_up.set()
        if life.is_closed or not life.is_of_this_process:
            life.move(ConsumerState.CLOSED)
            return
        if self.background_task is None:
            life.move(ConsumerState.CLOSED)
            self._close_deserializers()
            return
        if self._has_loop_ended():
            life.move(ConsumerState.CLOSED)
            self.callback_runner.abandon()
            self._close_deserializers()
            return
        self._check_loop()
        if self._callbacks.is_inside:
            life.close_request = request
            return
        if life.is_ending:
            await self._ended.wait()
            if not life.is_closed:  # a failed start() was being undone
                await self.close(request)
            return
        life.move(ConsumerState.CLOSING)
        ended = self._ended = OneShot()
        self._signal.notify()
        try:
            await self._close_now(self.background_task, request)
        finally:
            ended.set()

    async def _close_now(self, root: BackgroundTask, request: CloseRequest) -> None:
        error: KafkaError | None = None
        limit = leave_timeout(request.timeout)
        deadline = anyio.current_time() + limit
        self.engine.leave_group = request.leave_group
        if not (self.life.close_request or self.life.left_with_error):
            self.engine.auto_commit.note_consumed()
        try:
            if root.is_alive:
                with anyio.CancelScope(shield=True), anyio.move_on_after(limit):
                    with anyio.move_on_after(limit / 2):
                        await self._await_commits()
                    error = await self._leave(
                        "closed", request.autocommit, deadline, request.leave_group
                    )
        finally:
            self.life.move(ConsumerState.CLOSED)
            self._signal.notify()
            await root.stop()
            self.callback_runner.abandon()
            self.callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    async def _await_commits(self) -> None:
        """Wait for the commits of commit_async()."""
        commits = self.engine.offset_requests.futures
        while commits:
            event = self._signal.event()
            if commits:
                await event.wait()

    async def _leave(
        self, cause: LeaveCause, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        await self._callbacks.enter_callback()
        # A __del__ method may start a task that stops the consumer. The garbage collector clears
        # weak references before it calls __del__, so they are set again.
        self.callback_runner.connect(_call, weak_callback(self._callbacks.call))
        try:
            return await self.callback_runner.leave(
                cause, autocommit, deadline, leave_group=leave_group
            )
        finally:
            self._callbacks.leave_callback()

    def note_subscribed(self, *, is_first: bool) -> None:
        """Note a new subscription, which the consumer joins the group with, also without a poll."""
        self.life.is_unsubscribing = False
        if is_first and self.background_task is not None:
            self.engine.callback_queue.note_call()

    async def unsubscribe(self) -> None:
        """Leave the group, and remove the subscription or assignment."""
        self.life.check_usable()
        if self.background_task is None:
            self.engine.subscription.unsubscribe()
            return
        error: KafkaError | None = None
        async with self._polling("unsubscribe()"):
            self.engine.check_running()
            self.life.is_unsubscribing = True
            deadline = anyio.current_time() + CLOSE_TIMEOUT
            try:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    error = await self._leave("unsubscribed", True, deadline)
            finally:
                if self.life.is_unsubscribing:  # otherwise subscribe() was called meanwhile
                    self.life.is_unsubscribing = False
                    self.engine.subscription.unsubscribe()
                self.engine.finish_leave()
        if error is not None:
            raise error

    def _leave_at_exit(self) -> LastRequestAtExit | None:
        """Leave the group in the event loop if it runs in another thread, otherwise in a new one.

        A ``connect`` hook may belong to the ended loop, so it is not called.
        """
        loop, life, engine = self.life.loop, self.life, self.engine
        if life.is_ending or not life.is_of_this_process:
            return None
        if not isinstance(loop, asyncio.AbstractEventLoop):
            return None  # trio's block has closed the consumer
        if loop.is_running():
            future = asyncio.run_coroutine_threadsafe(engine.leave_at_once(), loop)
            return LastRequestAtExit(wait=lambda seconds: wait([future], seconds))
        if self.config.connect is not None:
            return None
        return LastRequestAtExit(send=lambda: engine.leave_at_once(engine.cluster.request_alone))

    async def enter_block(self) -> None:
        """Begin an ``async with`` block: start, but leave errors of the group to a poll."""
        await self._start(in_block=True)

    async def enter_block_without_wait(self) -> None:
        """Begin a block as :meth:`enter_block` does, but leave its waits and errors to a poll."""
        self.life.check_usable()
        await self._start_task(in_block=True)

    async def leave_block(self) -> None:
        """End an ``async with`` block of a closed consumer."""
        if self.background_task is not None:
            await self.background_task.leave_block()

    def abandon(self) -> bool:
        """End the task without a wait. Return True if the consumer should have been closed."""
        task = self.background_task
        if task is None or self.life.is_closed or not self.life.is_of_this_process:
            return False
        task.abandon()
        return True

    # -- commits ------------------------------------------------------------------------------

    def run_commit_callbacks(self) -> None:
        """Call the callbacks of finished commits, unless a task runs callbacks."""
        if not self._callbacks.is_running:
            self.callback_runner.run_commit_callbacks()

    def start_commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitFunction | None
    ) -> AsyncCommitFuture:
        """Start a commit, and return its future."""
        if self.background_task is None or not self._started.is_set:
            raise IllegalStateError(
                "commit_async() failed: the consumer is not started. Await start() or poll() first"
            )
        self._check_loop()
        self.engine.check_running()
        future = AsyncCommitFuture()
        self._follow_commit(future, offsets, callback)
        self.engine.offset_requests.start_commit(offsets, future.finish)
        return future

    # -- records ------------------------------------------------------------------------------

    async def deliver(self, delivery: CallDelivery, timeout: float, chosen: Chosen) -> None:
        """Poll until the delivery may end, and roll it back after an error."""
        end = None if self.observe_poll is None else self.observe_poll()
        try:
            await self._enter_poll("poll()")
            try:  # a context manager would take longer
                self.engine.auto_commit.note_consumed()
                taken = await self._poll(delivery, timeout, chosen)
                self.engine.callback_queue.has_returned_records |= taken
            finally:
                await self._leave_poll()
            if end is not None:
                end(delivery.observed(), None)
        except BaseException as error:
            delivery.roll_back()
            if end is not None:
                end(None, error)
            raise

    async def _next(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record. Raise ConsumerClosedError if the consumer is closed."""
        async with self._polling("iteration"):
            if self._clock() >= self._yield_at:
                await self._yield_to_loop()
            seconds = REPEAT_SECONDS
            while not self.life.close_request:
                record = await self._next_record(seconds)
                if record is not None:
                    self.engine.callback_queue.has_returned_records = True
                    return record
                seconds = min(2 * seconds, LONGEST_REPEAT_SECONDS)
        raise ConsumerClosedError("the consumer was closed")

    async def _next_record(self, seconds: float) -> ConsumerRecord[Any, Any] | None:
        self.engine.callback_queue.raise_wakeup()
        # Rebalances run between two records, because the buffered ones may last for hours.
        waits = self.engine.callback_queue.pending or self._callbacks.is_spawned
        record = None if waits else self.iteration_buffer.next()
        if record is None:
            await self._refill(seconds)
            record = self.iteration_buffer.next()
        return record

    async def _refill(self, seconds: float) -> None:
        buffer, size = self.engine.fetcher.buffer, self.drain_size
        delivery = IterationDelivery(buffer, self.iteration_buffer, size, self._clock)
        try:
            await self._poll(delivery, seconds, None)
            delivery.commit()
        except BaseException:
            delivery.roll_back()
            raise

    async def _poll(self, delivery: Delivery, timeout: float, chosen: Chosen) -> bool:
        """Run callbacks and wait until the delivery may end. Return True if it has records."""
        deadline = self._clock() + timeout
        if timeout <= 0 or self.iteration_buffer or not self.engine.fetcher.buffer.is_empty:
            # If records are buffered, a cancellation is raised only here, before any are taken.
            await self._yield_to_loop()
        while True:
            event = self._signal.event()
            await self._callbacks.run()
            self._check_open()
            remaining = deadline - self._clock()
            timed_out = remaining <= 0
            self.callback_runner.raise_errors(timed_out=timed_out)
            if self.life.close_request:
                return False
            try:
                taken = delivery.take(chosen, repeat_errors=timed_out)
            except DeserializerNotReadyError as error:
                await self.make_ready(error)
                if not timed_out:
                    continue
                taken = False
            if taken or timed_out:
                return taken
            await event.wait(remaining)

    async def make_ready(self, error: DeserializerNotReadyError) -> None:
        """Do the I/O of a deserializer in a worker thread, and raise what it raises."""
        await anyio.to_thread.run_sync(error.prepare, abandon_on_cancel=True)

    async def step(self) -> ConsumerRecord[Any, Any]:
        """Return the next record when the run of AsyncIteration.__anext__() has ended."""
        run = self.record_run
        if self._clock() >= self._run_until:
            await self._yield_to_loop()
            session = self.engine.coordinator or NO_GROUP
            run.until = self._run_until = min(self._yield_at, session.confirmed_until)
        run.now = self._clock()
        # No call follows, so Ctrl-C cannot come between (see _delivery).
        if run.index < run.stop and not run.wake_up.is_set and run.now < run.until:
            run.wake_up.taken_at = run.now
            record: ConsumerRecord[Any, Any] = run.records[run.index]
            run.index += 1
            return record
        callback_queue = self.engine.callback_queue
        self.iteration_buffer.end_run()
        self.engine.subscription.wake_up.is_set = False
        busy = (
            callback_queue.pending
            or callback_queue.is_wakeup_requested
            or self.life.is_ending
            or self._callbacks.is_spawned
        )
        if self.iteration_buffer and not busy:
            given = self.iteration_buffer.next_after_consumed()
            if given is not None:
                callback_queue.has_returned_records = True
                if not self._callbacks.active_polls:
                    callback_queue.leave_poll()
                self.iteration_buffer.start_run(self._run_until)
                return given
        try:
            return await self._next()
        except ConsumerClosedError:
            raise StopAsyncIteration from None

    def check_iterable(self) -> None:
        """Raise ConsumerClosedError if the consumer is closed."""
        if self.life.is_closed:
            raise ConsumerClosedError("the consumer is closed. Create a new one")

    @asynccontextmanager
    async def _polling(self, what: str) -> AsyncIterator[None]:
        """Run the body as a poll: it counts as activity, and callbacks may run in it."""
        await self._enter_poll(what)
        try:
            self.engine.auto_commit.note_consumed()
            yield
        finally:
            await self._leave_poll()

    async def _enter_poll(self, what: str) -> None:
        await self._ensure_started()
        self._callbacks.check_not_inside(what)
        self._callbacks.enter_poll()

    async def _leave_poll(self) -> None:
        callbacks, life = self._callbacks, self.life
        callbacks.leave_poll()
        if life.close_request and not life.is_closed and not callbacks.is_running:
            await self._close_pending()

    async def _yield_to_loop(self) -> None:
        """Let the event loop run once. A cancelled task raises here."""
        await checkpoint()
        self._yield_at = self._clock() + YIELD_SECONDS

    def _has_loop_ended(self) -> bool:
        """Return True if the consumer's event loop has ended."""
        return event_loop() is not self.life.loop and not (
            self.background_task and self.background_task.is_alive
        )

    def _check_open(self) -> None:
        if self.life.is_ending:
            raise ConsumerClosedError("the consumer was closed")

    def _check_loop(self) -> None:
        if event_loop() is not self.life.loop:
            raise IllegalStateError(
                "the consumer cannot be used here: it was started in another event loop. Await its "
                "methods there, or create a new consumer here"
            )
