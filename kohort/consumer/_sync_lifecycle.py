"""KafkaConsumer from its first call to close(): its thread, its owner, commits, the cluster."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent import futures
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig
from kohort.consumer import _arguments
from kohort.consumer._base import ConsumerBase, leave_timeout
from kohort.consumer._callback_queue import CommitCallback
from kohort.consumer._callback_runner import CallbackRunner, run_inline
from kohort.consumer._commit_future import CommitFuture, thread_timeout
from kohort.consumer._engine import DISCONNECT_SECONDS, Engine
from kohort.consumer._greenlet import make_consumer_thread
from kohort.consumer._owner_lock import OwnerLock
from kohort.consumer._signal import WAIT_SLICE_SECONDS, ThreadSignal
from kohort.consumer._thread import ConsumerThread
from kohort.consumer._thread_loop import PollPauses
from kohort.errors import (
    ConsumerClosedError,
    KafkaError,
    RebalanceListenerError,
)
from kohort.listeners._dispatch import CallbackName, call_listener
from kohort.types import LazyModule, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer._typing")

logger = logging.getLogger("kohort.consumer")

T = TypeVar("T")

OVERRUN_SECONDS = 1.0
"""Seconds that a call waits for the core after the core's own limit for it has passed."""
CLOSE_OVERRUN_SECONDS = 0.2
"""The same while the consumer closes, which has a limit for all of its steps together."""


class SyncLifecycle(ConsumerBase):
    """Base of KafkaConsumer without records, subscription and positions."""

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        config.check_sync()
        self._signal = ThreadSignal()
        self._pauses = PollPauses(self._signal)
        self._owner_lock = OwnerLock()
        self._thread: ConsumerThread | None = None
        self._pending_close: tuple[bool, float | None, bool | None] | None = None
        self._closing_until: float | None = None
        self._commits: set[Future[None]] = set()
        engine = Engine(config, notify=self._signal.notify, clock=time.monotonic)
        self._callback_queue = engine.callback_queue
        self._prepare(config, engine, topics)

        async def invoke(
            listener: Any, callback: CallbackName, partitions: frozenset[TopicPartition]
        ) -> RebalanceListenerError | None:
            return call_listener(listener, callback, partitions)

        self._callback_runner = CallbackRunner(engine, invoke)
        self._connect_callback_runner()

    def _connect_callback_runner(self) -> None:
        """Let the performer call this consumer, without keeping it alive."""
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

    # -- the core -----------------------------------------------------------------------------

    def _running_thread(self) -> ConsumerThread:
        self._check_usable()
        if self._thread is None:
            self._start_thread()
        thread = self._thread
        assert thread is not None
        if thread.ended:
            self._engine.ended = True  # the engine could not say so if it never ran
        return thread

    def _start_thread(self) -> None:
        """Start the thread. ThreadStartError: nothing is left of it, and a later call retries."""
        callback_queue = self._engine.callback_queue
        before = callback_queue.engine_loop
        thread = make_consumer_thread(
            self._engine, f"kohort-heartbeat-{self._config.client.client_id}"
        )
        pid = os.getpid()
        # Stored first: Ctrl-C may come when the thread runs, and a core must not run twice.
        # Between this and the try nothing is called: signal handlers run in calls.
        callback_queue.engine_loop = self._thread = thread
        self._pid = pid
        try:
            thread.start()
        except BaseException:
            thread.end_unstarted()  # Ctrl-C may come before the first line of start()
            raise
        finally:
            if thread.ended:
                callback_queue.engine_loop, self._thread, self._pid = before, None, None

    def _call_engine(self, function: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Await ``function()``, which limits itself to ``seconds``, in the core.

        KafkaTimeoutError if the core does not run and so cannot keep to the limit;
        IllegalStateError if it has ended.
        """
        thread = self._running_thread()
        deadline = self._deadline(seconds)
        future = thread.call(function)
        try:
            while not future.done():
                if (
                    not self._owner_lock.is_held_by_caller
                ):  # a callback's calls are of poll(), which sees to it itself
                    self._engine.callback_queue.raise_wakeup()
                if (left := deadline - time.monotonic()) <= 0:
                    thread.cancel_call(future)
                    raise thread_timeout(seconds)
                futures.wait([future], min(WAIT_SLICE_SECONDS, left))
            return self._result(thread, future)
        finally:
            del future  # its exception refers to this frame

    def _result(self, thread: ConsumerThread, future: Future[T]) -> T:
        try:
            if thread.ended and not self._closed:
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
        """Do as :meth:`_call` does, and perform what the core leaves. Give up with a warning."""
        thread = self._running_thread()
        deadline = self._deadline(seconds)
        future = thread.call(function)
        future.add_done_callback(lambda _: self._signal.notify())
        try:
            while True:
                self._signal.clear()
                run_inline(perform())
                if future.done():
                    return self._result(thread, future)
                if (left := deadline - time.monotonic()) <= 0:
                    thread.cancel_call(future)
                    logger.warning("%s", thread_timeout(seconds))
                    return None
                self._signal.wait(min(left, 1.0))
        finally:
            del future  # as in _call()

    def _deadline(self, seconds: float) -> float:
        """The time when a call is given up."""
        grace = OVERRUN_SECONDS if self._closing_until is None else CLOSE_OVERRUN_SECONDS
        return time.monotonic() + seconds + grace

    def _run_as_owner(self, what: str, function: Callable[[], T]) -> T:
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
        self._running_thread()
        nested = self._owner_lock.is_held_by_caller
        try:
            self._owner_lock.acquire(what)
            self._engine.callback_queue.enter_poll()
            self._engine.note_consumed()
            return function()
        finally:
            if not nested:
                try:
                    self._release_owner()
                finally:
                    self._release_owner()  # Ctrl-C in the midst of it must not leave the door shut
                    if self._pending_close is not None:
                        self._close(*self._pending_close)

    def _release_owner(self) -> None:
        if self._owner_lock.is_held_by_caller:
            self._engine.callback_queue.leave_poll()
            self._owner_lock.release()

    def _timeout(self, timeout_ms: float | None) -> float:
        timeout = _arguments.timeout_seconds(timeout_ms, self._config.client.request_timeout_ms)
        assert timeout is not None
        if timeout_ms is None and self._closing_until is not None:
            return min(timeout, max(0.1, self._closing_until - time.monotonic()))
        return timeout

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, offsets: _typing.CommitOffsets | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions, or these offsets, and wait until that is done.

        ``{partition: OffsetAndMetadata | offset}``. CommitFailedError when the group moved on,
        KafkaTimeoutError, IllegalStateError without a group.
        """
        self._check_usable()
        chosen = self._offsets_to_commit(offsets)
        timeout = self._timeout(timeout_ms)
        try:
            self._call_engine(lambda: self._engine.commit(chosen, timeout), timeout)
        finally:
            if self._owner_lock.is_free:
                self._callback_runner.run_commit_callbacks()

    def commit_async(
        self,
        offsets: _typing.CommitOffsets | None = None,
        callback: _typing.CommitCallback | None = None,
    ) -> Future[None]:
        """Commit without waiting; close() waits for it.

        ``callback(offsets, error)`` is called from a later poll(), commit() or close(); error is
        None when it worked. Without one, ``default_offset_commit_callback`` is. ``result()`` of the
        future waits no longer than commit() does, and raises its errors.
        """
        self._check_usable()
        chosen = self._offsets_to_commit(offsets)
        wanted = callback or self._config.default_offset_commit_callback
        callback_queue, thread = self._engine.callback_queue, self._running_thread()
        self._engine.check_running()
        ids = self._engine.ids_of(chosen)  # those of now: a later poll() may change them
        timeout = self._timeout(None)
        future = thread.call(
            lambda: self._engine.commit(chosen, None, ids=ids),
            CommitFuture(timeout, self._deadline(timeout)),
        )
        self._commits.add(future)

        def done(future: Future[None]) -> None:
            if wanted is not None and not future.cancelled():
                result = CommitCallback(wanted, chosen, future.exception())
                callback_queue.add_commit_callback(result)
            self._commits.discard(future)
            callback_queue.notify()

        future.add_done_callback(done)
        return future

    @overload
    def committed(
        self,
        partition: TopicPartition,
        metadata: Literal[False] = False,
        timeout_ms: float | None = None,
    ) -> int | None: ...

    @overload
    def committed(
        self,
        partition: TopicPartition,
        metadata: Literal[True],
        timeout_ms: float | None = None,
    ) -> OffsetAndMetadata | None: ...

    @overload
    def committed(
        self,
        partition: Iterable[TopicPartition],
        metadata: Literal[False] = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    def committed(
        self,
        partition: Iterable[TopicPartition],
        metadata: Literal[True],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self,
        partition: TopicPartition | Iterable[TopicPartition],
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> Any:
        """The offset that the group has committed, None if none; with ``metadata``, all of it.

        Of several partitions, asked for in one request, a dict.
        """
        self._require_group()
        one, chosen = _arguments.one_or_more(partition)
        timeout = self._timeout(timeout_ms)
        found = self._call_engine(lambda: self._engine.committed(chosen, timeout), timeout)
        offsets: dict[TopicPartition, int | OffsetAndMetadata | None] = {
            tp: at if metadata or at is None else at.offset for tp, at in found.items()
        }
        return offsets[chosen[0]] if one else offsets

    # -- the cluster --------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic; empty if there is no such topic. KafkaTimeoutError."""
        (name,) = _arguments.topic_names([topic])
        timeout = self._timeout(None)
        return set(self._call_engine(lambda: self._engine.partitions_of(name, timeout), timeout))

    def topics(self) -> set[str]:
        """The names of all topics. KafkaTimeoutError."""
        timeout = self._timeout(None)
        return set(self._call_engine(lambda: self._engine.all_topics(timeout), timeout))

    def topic_ids(
        self, topics: _typing.Topics, timeout_ms: float | None = None
    ) -> dict[str, uuid.UUID]:
        """The ids of topics, asked for anew: a topic deleted and made anew has another (KIP-516).

        Without topics that do not exist, and empty with brokers before 2.8. KafkaTimeoutError.
        """
        names = _arguments.topic_names(topics)
        timeout = self._timeout(timeout_ms)
        return self._call_engine(lambda: self._engine.topic_ids(names, timeout), timeout)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster is known; ``refresh`` asks for it anew.

        ``timeout_ms=None`` is ``bootstrap_timeout_ms``. NoBrokersAvailable, KafkaTimeoutError.
        """
        client, timeout = self._config.client, _arguments.timeout_seconds(timeout_ms)
        seconds = (client.bootstrap_timeout_ms + client.request_timeout_ms) / 1000
        self._call_engine(
            lambda: self._engine.bootstrap(timeout, refresh=refresh),
            seconds if timeout is None else timeout,
        )

    def bootstrap_connected(self) -> bool:
        """Whether the cluster has been reached since the start, and the consumer is open."""
        self._check_process()
        return not self._closed and self._engine.cluster.bootstrapped

    # -- the end ------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End with WakeupError what waits: poll(), iteration, commit() and the look-ups.

        From any thread, or a signal handler. If nothing waits, the next of these raises; close()
        and unsubscribe() never do. Nothing is lost: poll on, or close. A commit that was being
        waited for may still be done.
        """
        self._engine.callback_queue.request_wakeup()
        self._signal.notify()

    def close(
        self,
        autocommit: bool = True,
        timeout_ms: float | None = None,
        leave_group: bool | None = None,
    ) -> None:
        """Commit (if automatic), call the listener, leave the group, end the thread.

        Takes 5 s at most, or ``timeout_ms``. May be called twice. From inside a listener, or from
        a signal handler inside poll(), it returns at once, and poll() closes on its way out.

        Raises only RebalanceListenerError. A consumer thread that does not answer is a WARNING: the
        partitions are given up here, and the group notices when the session expires.

        ``leave_group=False`` keeps the place in the group until the session expires, so that a
        restart goes unnoticed: the default of a static member, who has a ``group_instance_id``.
        True: its partitions go to others at once, the default of all others (KIP-1092).
        """
        timeout = _arguments.timeout_seconds(timeout_ms)
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._owner_lock.is_held_by_caller:
            self._pending_close = (autocommit, timeout, leave_group)
            self._signal.notify()
            return
        self._close(autocommit, timeout, leave_group)

    def _close(self, autocommit: bool, timeout: float | None, leave_group: bool | None) -> None:
        self._owner_lock.acquire("close()")
        self._engine.subscription.wake_up.set()
        try:
            if self._pending_close is None and not self._left_with_error:
                self._engine.note_consumed()
            self._pending_close = None
            limit = CLOSE_TIMEOUT if timeout is None else timeout
            self._close_now(autocommit, limit, leave_group)
        finally:
            self._owner_lock.release()

    def _close_now(self, autocommit: bool, limit: float, leave_group: bool | None) -> None:
        begun = time.monotonic()
        deadline = begun + leave_timeout(limit)
        thread = self._thread
        error: KafkaError | None = None
        try:
            # The interpreter stops daemon threads at its end: there is nothing to wait for.
            if thread is not None and not (self._engine.ended or sys.is_finalizing()):
                self._await_commits(deadline - limit / 2)
                reason = "the consumer was closed"
                error = self._leave(reason, autocommit, deadline, leave_group)
        finally:
            self._closed = True
            if thread is not None and not sys.is_finalizing():
                left = max(2 * DISCONNECT_SECONDS, begun + limit - time.monotonic())
                if not thread.stop(left):
                    logger.warning(
                        "the consumer's thread did not end within %.1f s: code that blocks runs "
                        "in its event loop. It ends when that returns",
                        time.monotonic() - begun,
                    )
            self._callback_runner.abandon()
            self._callback_runner.run_commit_callbacks()
            self._close_deserializers()
        if error is not None:
            raise error

    def _await_commits(self, deadline: float) -> None:
        """Wait for those that were begun without waiting."""
        while self._commits and (left := deadline - time.monotonic()) > 0:
            self._signal.clear()
            if self._commits:
                self._signal.wait(left)

    def _leave(
        self, reason: str, autocommit: bool, deadline: float, leave_group: bool | None = None
    ) -> KafkaError | None:
        """Give everything up in good order; returns what a listener raised."""
        # A __del__ method may close the consumer, and the garbage collector clears weak references
        # before it calls that.
        self._connect_callback_runner()
        self._closing_until = deadline
        try:
            return run_inline(
                self._callback_runner.leave(reason, autocommit, deadline, leave_group=leave_group)
            )
        finally:
            self._closing_until = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._left_with_error = exc_type is not None
        self.close()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and not self._closed and self._pid == os.getpid():
            thread.request_stop()
            self._warn_unclosed()  # last: with "python -W error" it raises
