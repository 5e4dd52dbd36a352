"""The lifecycle of KafkaConsumer, from its first call to close(): its thread and owner lock."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer.api import _arguments
from kohort.consumer.api._base import leave_timeout
from kohort.consumer.api._plans import Plan, RequestPlans
from kohort.consumer.driver._callback_runner import CallbackRunner, run_inline
from kohort.consumer.driver._delivery import PollLoop
from kohort.consumer.driver._owner_lock import OwnerLock
from kohort.consumer.driver._signal import WAIT_SLICE_SECONDS, CallResult, ThreadSignal
from kohort.consumer.driver._state import (
    CloseRequest,
    ConsumerState,
    LastRequestAtExit,
    leave_at_exit,
)
from kohort.consumer.driver._thread_loop import PollPauses
from kohort.consumer.engine._engine import DISCONNECT_SECONDS, Engine
from kohort.errors import (
    ConsumerClosedError,
    KafkaError,
    NoBrokersAvailable,
    RebalanceListenerError,
    SecurityError,
)
from kohort.listeners._dispatch import CallbackName, call_listener
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.driver._thread import ConsumerThread

logger = logging.getLogger("kohort.consumer")

T = TypeVar("T")

OVERRUN_SECONDS = 1.0
"""Seconds that a call waits for the consumer thread after its timeout has passed in the engine."""
CLOSE_OVERRUN_SECONDS = 0.2
"""The same during close(), which has one timeout for all steps together."""


class SyncLifecycle(RequestPlans):
    """The methods of KafkaConsumer that start, use and end its thread."""

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_sync()
        self._signal = ThreadSignal()
        self._pauses = PollPauses(self._signal)
        self._owner_lock = OwnerLock()
        self._thread: ConsumerThread | None = None
        self._closing_until: float | None = None
        engine = Engine(config, notify=self._signal.notify, clock=time.monotonic)
        self._callback_queue = engine.callback_queue
        self._prepare(config, engine, topics)

        async def invoke(
            listener: Any, callback: CallbackName, partitions: frozenset[TopicPartition]
        ) -> RebalanceListenerError | None:
            return call_listener(listener, callback, partitions)

        self._callback_runner = CallbackRunner(engine, invoke)
        self._connect_callback_runner()
        self._poll_loop = PollLoop(self._signal, self._callback_runner, self._life)

    def _connect_callback_runner(self) -> None:
        """Connect the callback runner, which refers to this consumer weakly."""
        consumer = weakref.proxy(self)

        async def call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
            result: T = consumer._call_engine(function, seconds)
            return result

        async def serve(
            function: Callable[[], Awaitable[None]],
            perform: Callable[[], Coroutine[Any, Any, None]],
            seconds: float,
        ) -> None:
            consumer._call_with_callbacks(function, perform, seconds)

        self._callback_runner.connect(call, serve)

    # -- the consumer thread ------------------------------------------------------------------

    def _running_thread(self) -> ConsumerThread:
        self._life.check_usable()
        thread = self._thread
        if thread is None:
            thread = self._start_thread()
            self._life.check_usable()  # a signal handler or another thread may have closed it
        if thread.ended:
            self._engine.ended = True  # an engine that never ran could not set it
        return thread

    def _start_thread(self) -> ConsumerThread:
        """Start and return the thread. After ThreadStartError nothing remains, so calls retry."""
        from kohort.consumer.driver._greenlet import make_consumer_thread

        callback_queue, life = self._engine.callback_queue, self._life
        before = callback_queue.engine_loop
        thread = make_consumer_thread(
            self._engine, f"kohort-heartbeat-{self._config.client.client_id}"
        )
        life.move(ConsumerState.STARTING, only_from=ConsumerState.NEW)
        pid = os.getpid()
        # A signal handler or another thread may have started or closed the consumer meanwhile. No
        # call comes between this check and the try (see _delivery).
        if self._thread is not None or life.state is not ConsumerState.STARTING:
            thread.end_unstarted()
            if life.is_ending:
                raise ConsumerClosedError("the consumer is closed. Create a new one")
            return self._running_thread()
        # The thread is stored first, because Ctrl-C may come when it runs, and an engine must not
        # run twice.
        callback_queue.engine_loop = self._thread = thread
        life.pid = pid
        try:
            thread.start()
        except BaseException:
            thread.end_unstarted()  # Ctrl-C may come before the first line of start()
            raise
        finally:
            if thread.ended:
                callback_queue.engine_loop, self._thread, life.pid = before, None, None
                life.move(ConsumerState.NEW, only_from=ConsumerState.STARTING)
            else:
                life.move(ConsumerState.RUNNING, only_from=ConsumerState.STARTING)
                leave_at_exit(self)
        return thread

    def _call(self, plan: Plan[T]) -> T:
        return self._call_engine(plan.function, plan.seconds)

    def _call_engine(self, function: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Await ``function()``, which has the timeout ``seconds``, in the engine's event loop.

        Raise KafkaTimeoutError if the thread does not respond, and IllegalStateError if it ended.
        """
        thread = self._running_thread()
        deadline = self._deadline(seconds)
        future = thread.call(function)
        try:
            while not future.done():
                if not self._owner_lock.is_held_by_caller:  # in a callback, poll() raises it
                    self._engine.callback_queue.raise_wakeup()
                if (left := deadline - time.monotonic()) <= 0:
                    thread.cancel_call(future)
                    raise thread.timeout_error(seconds)
                future.wait(min(WAIT_SLICE_SECONDS, left))
            return self._result(thread, future)
        finally:
            del future  # its exception refers to this frame

    def _result(self, thread: ConsumerThread, future: CallResult[T]) -> T:
        try:
            if thread.ended and not self._life.is_closed:
                if isinstance(future.exception(), ConsumerClosedError):
                    self._engine.check_running()
            return future.result()
        finally:
            del future  # as in _call()

    def _call_with_callbacks(
        self,
        function: Callable[[], Awaitable[None]],
        perform: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
    ) -> None:
        """Do as :meth:`_call_engine` does, and run the engine's callbacks meanwhile.

        Log a warning instead of an error if the thread does not respond.
        """
        thread = self._running_thread()
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
            del future  # as in _call()

    def _deadline(self, seconds: float) -> float:
        """Return the time when a call is cancelled because the thread does not respond."""
        grace = OVERRUN_SECONDS if self._closing_until is None else CLOSE_OVERRUN_SECONDS
        return time.monotonic() + seconds + grace

    def _run_as_owner(self, what: str, function: Callable[[], T]) -> T:
        """Run a function as poll(): hold the owner lock, count as activity, allow callbacks."""
        self._running_thread()
        lock, callback_queue = self._owner_lock, self._callback_queue
        nested = lock.is_held_by_caller
        try:
            lock.acquire(what)
            callback_queue.enter_poll()
            self._engine.auto_commit.note_consumed()
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
                    if self._life.close_request is not None:
                        self._close(self._life.close_request)

    def _timeout(self, timeout_ms: float | None) -> float:
        timeout = super()._timeout(timeout_ms)
        if timeout_ms is None and self._closing_until is not None:
            return min(timeout, max(0.1, self._closing_until - time.monotonic()))
        return timeout

    # -- start and close ----------------------------------------------------------------------

    def start(self) -> None:
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
        self._run_as_owner("start()", self._wait_until_started)

    def _wait_until_started(self) -> None:
        engine, runner = self._engine, self._callback_runner
        if not engine.cluster.bootstrapped:
            self._call(self._plan_bootstrap(None, False))
        # The first poll should not raise an error of an outage that is over.
        engine.errors.drop(NoBrokersAvailable)
        engine.errors.drop(SecurityError)
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
            if starting.is_done() or engine.errors.waiting or self._life.close_request:
                return
            seconds = starting.seconds
            self._signal.wait(1.0 if seconds is None else seconds)

    def wakeup(self) -> None:
        """Let a waiting call raise WakeupError: poll() or iteration.

        It may be called from any thread and from a signal handler. If no call waits, the next one
        raises. KafkaConsumer also raises it in commit() and lookups; an interrupted commit() may
        still succeed. close() and unsubscribe() never raise it. No record is lost, so you can
        continue to poll. If several tasks wait, one of them raises.
        """
        self._engine.callback_queue.request_wakeup()
        self._signal.notify()

    def close(
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
        life = self._life
        if life.is_closed or not life.is_of_this_process:
            life.move(ConsumerState.CLOSED)
            return
        request = CloseRequest(autocommit, timeout, leave_group)
        if self._owner_lock.is_held_by_caller:
            life.close_request = request
            self._signal.notify()
            return
        self._close(request)

    def _close(self, request: CloseRequest) -> None:
        lock = self._owner_lock
        try:
            lock.acquire("close()")
            self._engine.subscription.wake_up.set()
            if self._life.close_request is None and not self._life.left_with_error:
                self._engine.auto_commit.note_consumed()
            self._life.close_request = None
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
        thread = self._thread
        error: KafkaError | None = None
        try:
            self._life.move(ConsumerState.CLOSING)
            # The exiting interpreter stops daemon threads, so there is nothing to wait for.
            if thread is not None and not (self._engine.ended or sys.is_finalizing()):
                self._await_commits(deadline - limit / 2)
                reason = "the consumer was closed"
                error = self._leave(reason, autocommit, deadline, leave_group)
        finally:
            self._life.move(ConsumerState.CLOSED)
            thread = self._thread or thread  # the first call may have stored it meanwhile
            if thread is not None and not sys.is_finalizing():
                left = max(2 * DISCONNECT_SECONDS, begun + limit - time.monotonic())
                if not thread.stop(left):
                    logger.warning(
                        "the consumer thread did not end within %.1f s: blocking code runs in its "
                        "event loop. It ends when that code returns",
                        time.monotonic() - begun,
                    )
            self._callback_runner.abandon()
            self._callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    def _await_commits(self, deadline: float) -> None:
        """Wait for the commits of commit_async()."""
        commits = self._engine.offset_requests.futures
        while commits and (left := deadline - time.monotonic()) > 0:
            self._signal.clear()
            if commits:
                self._signal.wait(left)

    def _leave(
        self, reason: str, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        """Commit, call the listener and leave the group. Return the error of a listener."""
        # A __del__ method may close the consumer. The garbage collector clears weak references
        # before it calls __del__, so they are set again.
        self._connect_callback_runner()
        self._closing_until = deadline
        try:
            return run_inline(
                self._callback_runner.leave(reason, autocommit, deadline, leave_group=leave_group)
            )
        finally:
            self._closing_until = None

    def _leave_at_exit(self) -> LastRequestAtExit | None:
        """Leave the group in the consumer thread, which runs until the exit handlers have ended.

        The thread continues, so that a poll() of a daemon thread raises nothing.
        """
        thread, life = self._thread, self._life
        if thread is None or thread.ended or life.is_ending or not life.is_of_this_process:
            return None
        return LastRequestAtExit(wait=thread.call(self._engine.leave_at_once).wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._life.left_with_error = exc_type is not None
        self.close()

    def __del__(self) -> None:
        if self._is_finalizing():
            return
        thread = getattr(self, "_thread", None)
        if thread is not None and not self._life.is_closed and self._life.is_of_this_process:
            thread.request_stop()
            leave_at_exit(thread)  # which may end sooner than the thread
            self._warn_unclosed()  # last: with "python -W error" it raises
