"""The driver of KafkaConsumer: its thread, its owner lock, and the waits of its caller.

The engine runs in a daemon thread, the consumer thread, which the first call that needs it starts.
The caller's thread waits on a :class:`~kohort.consumer.driver._signal.ThreadSignal` and runs the
callbacks. The owner lock lets one thread at a time poll.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer.driver._callback_runner import CallbackRunner, run_inline
from kohort.consumer.driver._delivery import CallDelivery, Chosen, Delivery, IterationDelivery
from kohort.consumer.driver._driver import CommitFunction, Driver, Plan, leave_timeout, make_engine
from kohort.consumer.driver._iteration_buffer import RUN_SECONDS
from kohort.consumer.driver._life import (
    CloseRequest,
    ConsumerState,
    LastRequestAtExit,
    leave_at_exit,
)
from kohort.consumer.driver._signal import (
    WAIT_SLICE_SECONDS,
    CallResult,
    PollPauses,
    ThreadSignal,
)
from kohort.consumer.engine._engine import DISCONNECT_SECONDS, LeaveCause
from kohort.errors import (
    ConsumerClosedError,
    DeserializerNotReadyError,
    IllegalStateError,
    KafkaError,
    RebalanceListenerError,
    ReentrantCallError,
)
from kohort.listeners._dispatch import CallbackName, call_listener
from kohort.logs import get_logger
from kohort.records import ConsumerRecord
from kohort.subscription import NO_GROUP
from kohort.types import OffsetAndMetadata, RebalanceContext, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.driver._thread import ConsumerThread

logger = get_logger("kohort.consumer")

T = TypeVar("T")

OVERRUN_SECONDS = 1.0
"""Seconds that a call waits for the consumer thread after its timeout has passed in the engine."""
CLOSE_OVERRUN_SECONDS = 0.2
"""The same during close(), which has one timeout for all steps together."""

_OWNER = "owner"


class OwnerLock:
    """The lock that a thread holds inside poll() and similar calls.

    It is a dict with one key, because the methods of a dict are atomic. A lock and its owner would
    be two steps, and an interrupt between them would lock out all threads (see _delivery, rule 4).
    """

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}

    @property
    def is_held_by_caller(self) -> bool:
        """True if the calling thread holds the lock, in a callback or in a signal handler."""
        return self._owner.get(_OWNER) == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """True if no thread holds the lock."""
        return not self._owner

    def acquire(self, what: str) -> None:
        """Acquire the lock without a wait.

        Raise ReentrantCallError in a callback, and IllegalStateError if another thread holds it.
        """
        if self.is_held_by_caller:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )
        me = threading.get_ident()
        if self._owner.setdefault(_OWNER, me) != me:
            raise IllegalStateError(
                f"{what} failed: another thread is inside the consumer. Use a consumer from one "
                "thread at a time"
            )

    def release(self) -> None:
        """Release the lock, if it is held."""
        self._owner.pop(_OWNER, None)


class ThreadDriver(Driver):
    """The driver that runs the engine in a thread."""

    asynchronous = False

    def __init__(self, config: ConsumerConfig) -> None:
        config.check_sync()
        self._signal = ThreadSignal()
        self._pauses = PollPauses(self._signal)
        self.owner_lock = OwnerLock()
        self.thread: ConsumerThread | None = None
        self._closing_until: float | None = None
        engine = make_engine(config, notify=self._signal.notify, clock=time.monotonic)
        super().__init__(config, engine)

        async def invoke(
            listener: Any,
            callback: CallbackName,
            partitions: frozenset[TopicPartition],
            rebalance: RebalanceContext,
        ) -> RebalanceListenerError | None:
            return call_listener(listener, callback, partitions, rebalance)

        self.callback_runner = CallbackRunner(engine, invoke)
        self._connect_callback_runner()

    def _connect_callback_runner(self) -> None:
        """Connect the callback runner, which refers to this driver weakly."""
        driver = weakref.proxy(self)

        async def call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
            result: T = driver.call_engine(function, seconds)
            return result

        async def serve(
            function: Callable[[], Awaitable[None]],
            perform: Callable[[], Coroutine[Any, Any, None]],
            seconds: float,
        ) -> None:
            driver._call_with_callbacks(function, perform, seconds)

        self.callback_runner.connect(call, serve)

    # -- the consumer thread ------------------------------------------------------------------

    def running_thread(self) -> ConsumerThread:
        self.life.check_usable()
        thread = self.thread
        if thread is None:
            thread = self._start_thread()
            self.life.check_usable()  # a signal handler or another thread may have closed it
        if thread.ended:
            self.engine.ended = True  # an engine that never ran could not set it
        return thread

    def _start_thread(self) -> ConsumerThread:
        """Start and return the thread. After ThreadStartError nothing remains, so calls retry."""
        from kohort.consumer.driver._greenlet import make_consumer_thread

        callback_queue, life = self.engine.callback_queue, self.life
        before = callback_queue.engine_loop
        thread = make_consumer_thread(
            self.engine, f"kohort-heartbeat-{self.config.client.client_id}"
        )
        life.move(ConsumerState.STARTING, only_from=ConsumerState.NEW)
        pid = os.getpid()
        # A signal handler or another thread may have started or closed the consumer meanwhile. No
        # call comes between this check and the try (see _delivery).
        if self.thread is not None or life.state is not ConsumerState.STARTING:
            thread.end_unstarted()
            if life.is_ending:
                raise ConsumerClosedError("the consumer is closed. Create a new one")
            return self.running_thread()
        # The thread is stored first, because Ctrl-C may come when it runs, and an engine must not
        # run twice.
        callback_queue.engine_loop = self.thread = thread
        life.pid = pid
        try:
            thread.start()
        except BaseException:
            thread.end_unstarted()  # Ctrl-C may come before the first line of start()
            raise
        finally:
            if thread.ended:
                callback_queue.engine_loop, self.thread, life.pid = before, None, None
                life.move(ConsumerState.NEW, only_from=ConsumerState.STARTING)
            else:
                life.move(ConsumerState.RUNNING, only_from=ConsumerState.STARTING)
                leave_at_exit(self)
        return thread

    def call(self, plan: Plan[T]) -> T:
        """Make the call, and return its result."""
        function = partial(plan.function, self.engine, *plan.args)
        return self.call_engine(function, plan.seconds, is_wait=plan.is_wait)

    def call_engine(
        self, function: Callable[[], Awaitable[T]], seconds: float, *, is_wait: bool = False
    ) -> T:
        """Await ``function()``, which has the timeout ``seconds``, in the engine's event loop.

        Raise KafkaTimeoutError if the thread does not respond, and IllegalStateError if it ended.
        A wait of poll() is logged in place of the first, and cancelled at any error.
        """
        thread = self.running_thread()
        deadline = self._deadline(seconds)
        future = thread.call(function)
        try:
            while not future.done():
                if not self.owner_lock.is_held_by_caller:  # in a callback, poll() raises it
                    self.engine.callback_queue.raise_wakeup()
                if (left := deadline - time.monotonic()) <= 0:
                    thread.cancel_call(future)
                    if not is_wait:
                        raise thread.timeout_error(seconds)
                    logger.warning("%s", thread.timeout_error(seconds + OVERRUN_SECONDS))
                    return cast(T, None)
                future.wait(min(WAIT_SLICE_SECONDS, left))
            return self._result(thread, future)
        except BaseException:
            if is_wait and not future.done():
                thread.cancel_call(future)
            raise
        finally:
            del future  # its exception refers to this frame

    def call_without_limit(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await ``function()`` in the engine's event loop, however long it takes.

        Any thread may call it. It does not end with a wakeup(), which is for the polling thread.
        """
        future = self.running_thread().call(function)
        try:
            while not future.done():
                future.wait(WAIT_SLICE_SECONDS)
            return future.result()
        finally:
            del future  # as in call_engine()

    def _result(self, thread: ConsumerThread, future: CallResult[T]) -> T:
        try:
            if thread.ended and not self.life.is_closed:
                if isinstance(future.exception(), ConsumerClosedError):
                    self.engine.check_running()
            return future.result()
        finally:
            del future  # as in call_engine()

    def _call_with_callbacks(
        self,
        function: Callable[[], Awaitable[None]],
        perform: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """Do as :meth:`call_engine` does, and run the engine's callbacks meanwhile.

        Log a warning instead of an error if the thread does not respond.
        """
        thread = self.running_thread()
        deadline = self._deadline(seconds)
        future = thread.call_into(CallResult[None](self._signal), function)
        try:
            while True:
                self._signal.clear()
                run_inline(perform())
                if future.done():
                    return self._result(thread, future)
                if (left := deadline - time.monotonic()) <= 0:
                    thread.cancel_call(future)
                    logger.warning("%s", thread.timeout_error(seconds))
                    return None
                self._signal.wait(min(left, 1.0))
        finally:
            del future  # as in call_engine()

    def _deadline(self, seconds: float) -> float:
        """Return the time when a call is cancelled because the thread does not respond."""
        grace = OVERRUN_SECONDS if self._closing_until is None else CLOSE_OVERRUN_SECONDS
        return time.monotonic() + seconds + grace

    def _run_as_owner(self, what: str, function: Callable[[], T]) -> T:
        """Run a function as poll(): hold the owner lock, count as activity, allow callbacks."""
        self.running_thread()
        lock, callback_queue = self.owner_lock, self.engine.callback_queue
        nested = lock.is_held_by_caller
        try:
            lock.acquire(what)
            callback_queue.enter_poll()
            self.engine.auto_commit.note_consumed()
            return function()
        finally:
            if not nested:
                try:
                    if lock.is_held_by_caller:
                        callback_queue.leave_poll()
                        lock.release()
                finally:
                    if lock.is_held_by_caller:  # Ctrl-C came in between
                        callback_queue.leave_poll()
                        lock.release()
                    if self.life.close_request is not None:
                        self._close(self.life.close_request)

    @property
    def request_seconds(self) -> float:
        """The default timeout of a request, which is shorter while the consumer closes."""
        seconds = super().request_seconds
        if self._closing_until is not None:
            return min(seconds, max(0.1, self._closing_until - time.monotonic()))
        return seconds

    # -- start and close ----------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and wait for the first assignment and for positions."""
        self._run_as_owner("start()", self._wait_until_started)

    def _wait_until_started(self) -> None:
        engine, runner = self.engine, self.callback_runner
        if not engine.cluster.bootstrapped:
            bootstrap = partial(engine.cluster_requests.bootstrap, None, refresh=False)
            self.call_engine(bootstrap, self.bootstrap_seconds())
        # The first poll should not raise an error of an outage that is over.
        engine.errors.drop_outages()
        if not engine.subscription.is_subscribed and not engine.subscription.assigned():
            return
        from kohort.consumer.driver._startup import StartupWait

        starting = StartupWait(engine.parts, lambda: engine.has_first_assignment)
        while True:
            self._signal.clear()
            if runner.has_callbacks:
                run_inline(runner.run_all())
            engine.check_running()
            engine.errors.raise_group_failure()
            if starting.is_done() or engine.errors.waiting or self.life.close_request:
                return
            seconds = starting.seconds
            self._signal.wait(1.0 if seconds is None else seconds)

    def wakeup(self) -> None:
        """Let a waiting call raise WakeupError. Any thread and signal handler may call it."""
        self.engine.callback_queue.request_wakeup()
        self._signal.notify()

    def close(self, request: CloseRequest) -> None:
        """Leave the group and end the thread, or let poll() do so after a callback."""
        life = self.life
        if life.is_closed or not life.is_of_this_process:
            life.move(ConsumerState.CLOSED)
            return
        if self.owner_lock.is_held_by_caller:
            life.close_request = request
            self._signal.notify()
            return
        self._close(request)

    def _close(self, request: CloseRequest) -> None:
        lock = self.owner_lock
        try:
            lock.acquire("close()")
            self.engine.subscription.wake_up.set()
            if self.life.close_request is None and not self.life.left_with_error:
                self.engine.auto_commit.note_consumed()
            self.life.close_request = None
            self._close_now(*request)
        finally:
            try:
                if lock.is_held_by_caller:
                    lock.release()
            finally:
                if lock.is_held_by_caller:  # Ctrl-C came in between
                    lock.release()

    def _close_now(self, autocommit: bool, limit: float, leave_group: bool | None) -> None:
        begun = time.monotonic()
        deadline = begun + leave_timeout(limit)
        thread = self.thread
        error: KafkaError | None = None
        self.engine.leave_group = leave_group
        try:
            self.life.move(ConsumerState.CLOSING)
            # The exiting interpreter stops daemon threads, so there is nothing to wait for.
            if thread is not None and not (self.engine.ended or sys.is_finalizing()):
                self._await_commits(deadline - limit / 2)
                error = self._leave("closed", autocommit, deadline, leave_group)
        finally:
            self.life.move(ConsumerState.CLOSED)
            thread = self.thread or thread  # the first call may have stored it meanwhile
            if thread is not None and not sys.is_finalizing():
                left = max(2 * DISCONNECT_SECONDS, begun + limit - time.monotonic())
                if not thread.stop(left):
                    logger.warning(
                        "the consumer thread did not end within %.1f s: blocking code runs in its "
                        "event loop. It ends when that code returns",
                        time.monotonic() - begun,
                    )
            self.callback_runner.abandon()
            self.callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    def _await_commits(self, deadline: float) -> None:
        """Wait for the commits of commit_async()."""
        commits = self.engine.offset_requests.futures
        while commits and (left := deadline - time.monotonic()) > 0:
            self._signal.clear()
            if commits:
                self._signal.wait(left)

    def _leave(
        self, cause: LeaveCause, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        """Commit, call the listener and leave the group. Return the error of a listener."""
        # A __del__ method may close the consumer. The garbage collector clears weak references
        # before it calls __del__, so they are set again.
        self._connect_callback_runner()
        self._closing_until = deadline
        try:
            return run_inline(
                self.callback_runner.leave(cause, autocommit, deadline, leave_group=leave_group)
            )
        finally:
            self._closing_until = None

    def _leave_at_exit(self) -> LastRequestAtExit | None:
        """Leave the group in the consumer thread, which runs until the exit handlers have ended.

        The thread continues, so that a poll() of a daemon thread raises nothing.
        """
        thread, life = self.thread, self.life
        if thread is None or thread.ended or life.is_ending or not life.is_of_this_process:
            return None
        return LastRequestAtExit(wait=thread.call(self.engine.leave_at_once).wait)

    def enter_block(self) -> None:
        """Begin a ``with`` block. The first call in it starts the thread."""

    def leave_block(self) -> None:
        """End a ``with`` block of a closed consumer."""

    def abandon(self) -> bool:
        """End the thread without a wait. Return True if the consumer should have been closed."""
        thread = self.thread
        if thread is None or self.life.is_closed or not self.life.is_of_this_process:
            return False
        thread.request_stop()
        leave_at_exit(thread)  # which may end sooner than the thread
        return True

    # -- subscription and commits -------------------------------------------------------------

    def note_subscribed(self, *, is_first: bool) -> None:
        """Do nothing: the next poll() acts on a new subscription."""

    def unsubscribe(self) -> None:
        """Leave the group, and remove the subscription or assignment."""
        if self.thread is None:
            self.life.check_usable()
            self.engine.subscription.unsubscribe()
            return
        error = self._run_as_owner("unsubscribe()", self._unsubscribe)
        if error is not None:
            raise error

    def _unsubscribe(self) -> KafkaError | None:
        try:
            deadline = time.monotonic() + CLOSE_TIMEOUT
            return self._leave("unsubscribed", True, deadline)
        finally:
            self.engine.subscription.unsubscribe()
            self.call_soon(self.engine.finish_leave)

    def run_commit_callbacks(self) -> None:
        """Call the callbacks of finished commits, unless a poll does."""
        if self.owner_lock.is_free:
            self.callback_runner.run_commit_callbacks()

    def start_commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitFunction | None
    ) -> Future[None]:
        """Start a commit, and return its future."""
        from kohort.consumer.driver._commit_future import CommitFuture

        thread = self.running_thread()
        self.engine.check_running()
        requests = self.engine.offset_requests
        ids = requests.ids_of(offsets)  # read now, because a later poll() may change them
        timeout = self.request_seconds
        future = thread.call_into(
            CommitFuture(timeout, self._deadline(timeout)),
            partial(requests.commit, offsets, None, ids=ids),
        )
        self._follow_commit(future, offsets, callback)
        return future

    def position(self, plan: Plan[int], partition: TopicPartition) -> int:
        """Return the position if it is known, or else look it up."""
        known = self.engine.subscription.position(partition)
        return self.call(plan) if known is None else known

    # -- records ------------------------------------------------------------------------------

    def deliver(self, delivery: CallDelivery, timeout: float, chosen: Chosen) -> None:
        """Poll until the delivery may end, and roll it back after an error."""
        end = None if self.observe_poll is None else self.observe_poll()
        try:
            self._run_as_owner("poll()", lambda: self._poll(delivery, timeout, chosen))
            if end is not None:
                end(delivery.observed(), None)
        except BaseException as error:
            delivery.roll_back()
            if end is not None:
                end(None, error)
            raise

    def _poll(self, delivery: Delivery, timeout: float, chosen: Chosen) -> None:
        """Return when the delivery may end, at a close(), or after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        runner, signal = self.callback_runner, self._signal
        while True:
            signal.clear()
            if runner.has_callbacks:
                run_inline(runner.run_all())
            remaining = deadline - time.monotonic()
            timed_out = remaining <= 0
            runner.raise_errors(timed_out=timed_out)
            if self.life.close_request is not None:
                return
            try:
                if delivery.take(chosen, repeat_errors=timed_out):
                    return
            except DeserializerNotReadyError as error:
                self.make_ready(error)
                if not timed_out:
                    continue
            if timed_out and not (timeout <= 0 and self._pause()):
                return
            signal.wait(remaining)

    def make_ready(self, error: DeserializerNotReadyError) -> None:
        """Do the I/O of a deserializer, and raise what it raises."""
        error.prepare()

    def _pause(self) -> bool:
        """Let the consumer thread run, in a poll() without a timeout. Return True if notified."""
        thread = self.thread
        return thread is not None and self._pauses.pause(thread.is_busy)

    def check_iterable(self) -> None:
        """Do nothing: the iterator of a closed consumer is empty."""

    def step(self) -> ConsumerRecord[Any, Any]:
        """Return the next record when the run of SyncIteration.__next__() has ended."""
        if self.life.is_closed:
            raise StopIteration
        given = self.iteration_buffer.delivered_count
        try:
            record = self._next_buffered()
            if record is None:
                record = self._run_as_owner("iteration", self._next)
        except BaseException:
            if self.iteration_buffer.delivered_count != given:
                self.iteration_buffer.undo_next()
            raise
        if record is None:
            raise StopIteration
        return record

    def _next_buffered(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next buffered record, or None if a poll is needed first."""
        callback_queue = self.engine.callback_queue
        self.iteration_buffer.end_run()
        self.engine.subscription.wake_up.is_set = False
        if (
            not self.iteration_buffer
            or callback_queue.pending
            or callback_queue.is_wakeup_requested
            or not self.owner_lock.is_free
        ):
            return None
        self.life.check_usable()
        record = self.iteration_buffer.next_after_consumed()
        if record is not None:
            callback_queue.leave_poll()
            session = self.engine.coordinator or NO_GROUP
            self.iteration_buffer.start_run(
                min(time.monotonic() + RUN_SECONDS, session.confirmed_until)
            )
        return record

    def _next(self) -> ConsumerRecord[Any, Any] | None:
        deadline = time.monotonic() + self.config.consumer_timeout_ms / 1000
        timed_out = False
        self.engine.callback_queue.raise_wakeup()
        # Rebalances run between two records, because the buffered ones may last for hours.
        record = None if self.callback_runner.has_callbacks else self.iteration_buffer.next()
        while record is None:
            if timed_out or self.life.close_request is not None:
                return None
            remaining = deadline - time.monotonic()
            timed_out = remaining <= 0
            self._refill(max(0.0, min(remaining, 1.0)))
            record = self.iteration_buffer.next()
        return record

    def _refill(self, timeout: float) -> None:
        buffer, size = self.engine.fetcher.buffer, self.drain_size
        delivery = IterationDelivery(buffer, self.iteration_buffer, size, time.monotonic)
        try:
            self._poll(delivery, timeout, None)
            delivery.commit()
        except BaseException:
            delivery.roll_back()
            raise
