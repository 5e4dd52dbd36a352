"""The asynchronous face from start() to stop(): its task, whose turn it is, and the callbacks."""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

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
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer._typing")

T = TypeVar("T")


async def _call(function: Callable[[], Awaitable[T]], seconds: float) -> T:
    return await function()


class AsyncLifecycle(AsyncCallbacks):
    """Base of AsyncKafkaConsumer without records, subscription and positions."""

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

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The end for read_committed, as of the last fetch; None before, -1 if uncommitted."""
        self._check_process()
        tp = _arguments.topic_partition(partition)
        offset = self._engine.subscription.last_stable_offset(tp)
        committed = self._config.fetch.isolation_level == "read_committed"
        return offset if committed or offset is None else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When the last answer to a fetch of the partition came, ms since the epoch; or None."""
        self._check_process()
        tp = _arguments.topic_partition(partition)
        self._check_assigned([tp])
        fetched = self._engine.fetcher.fetched_at(tp)
        if fetched is None:
            return None
        now = (self._config.wall_clock or time.time)()
        return int((now - (anyio.current_time() - fetched)) * 1000)

    # -- committing ---------------------------------------------------------------------------

    async def commit(self, offsets: _typing.CommitOffsets | None = None) -> None:
        """As :meth:`KafkaConsumer.commit`; NotAssignedError for what is not assigned."""
        self._check_running()
        chosen = self._offsets_to_commit(offsets)
        self._check_assigned(chosen)
        await self._engine.commit(chosen, None)

    @overload
    async def committed(self, partition: TopicPartition) -> int | None: ...

    @overload
    async def committed(
        self, partition: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]: ...

    async def committed(
        self, partition: TopicPartition | Iterable[TopicPartition]
    ) -> int | dict[TopicPartition, int | None] | None:
        """The offset that the group has committed, None if none; of several partitions a dict."""
        self._require_group()
        self._check_running()
        one, chosen = _arguments.one_or_more(partition)
        found = await self._engine.committed(chosen, None)
        offsets = {tp: None if at is None else at.offset for tp, at in found.items()}
        return offsets[chosen[0]] if one else offsets

    # -- the cluster --------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic, as far as known without asking; None if it is not known."""
        self._check_process()
        return set(self._engine.cluster.metadata.partitions_for(topic)) or None

    async def topic_ids(self, topics: _typing.Topics) -> dict[str, uuid.UUID]:
        """The ids of topics, asked for anew: a topic deleted and made anew has another (KIP-516).

        Without topics that do not exist, and empty with brokers before 2.8. KafkaTimeoutError.
        """
        self._check_running()
        return await self._engine.topic_ids(_arguments.topic_names(topics), None)

    async def topics(self) -> set[str]:
        """The names of all topics. KafkaTimeoutError."""
        self._check_running()
        return set(await self._engine.all_topics(None))

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
        """Be as before start(): what is subscribed to or assigned stays, and nothing runs."""
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
        """A core runs once: another one, with the same subscription and listener."""
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
        """Wait for the metadata and the first assignment; what goes wrong later, getmany raises."""
        engine = self._engine
        try:
            await engine.cluster.wait_bootstrapped()
        except KafkaError:
            self._check_usable()  # another task stopped it meanwhile
            raise
        # Somebody who polls should not hear of an outage that is over.
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
        """End getmany(), getone() or iteration with WakeupError; if none waits, the next of them.

        From any task, any thread, or a signal handler. Nothing is lost. Where several tasks wait,
        one of them is told. What else waits is ended by cancelling it.
        """
        self._engine.callback_queue.request_wakeup()
        if self._background_task is not None:
            self._background_task.call_soon(self._signal.notify)

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
            if not self._closed:  # what was going on was the end of a start() in vain
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
        # A __del__ method may start a task that stops the consumer, and the garbage collector
        # clears weak references before it calls that.
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
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
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
        """Let the event loop run once. Raises here if the calling task is cancelled."""
        await checkpoint()
        self._yield_at = self._clock() + YIELD_SECONDS

    def _check_started(self) -> None:
        self._check_usable()
        if self._background_task is None:
            raise IllegalStateError("not started: use 'async with', or await start() first")
        self._check_loop()

    def _check_running(self) -> None:
        self._check_started()
        self._engine.check_running()

    def _has_loop_ended(self) -> bool:
        """Its event loop has ended, and everything that it ran."""
        return event_loop() is not self._loop and not (
            self._background_task and self._background_task.is_alive
        )

    def _check_open(self) -> None:
        if self._closed or self._stopping is not None:
            raise ConsumerClosedError("the consumer was stopped")
