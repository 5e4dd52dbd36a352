"""AsyncKafkaConsumer: the asynchronous face. The core runs in the caller's event loop."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from kohort.config import ConsumerConfig
from kohort.consumer import _arguments
from kohort.consumer._base import CLOSE_TIMEOUT, ConsumerBase, Pattern
from kohort.consumer._engine import EARLIEST, LATEST, Engine
from kohort.consumer._performer import Performer
from kohort.consumer._root import Root, make_root
from kohort.consumer._signal import TaskSignal
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    ReentrantCallError,
)
from kohort.listeners import acall_listener
from kohort.records import ConsumerRecord
from kohort.subscription import OffsetReset
from kohort.types import OffsetAndTimestamp, TopicPartition

logger = logging.getLogger("kohort.consumer")

T = TypeVar("T")
Record = ConsumerRecord[Any, Any]
Records = dict[TopicPartition, list[Record]]


class AsyncKafkaConsumer(ConsumerBase):
    """Reads topics, alone or as a member of a consumer group, on asyncio or trio.

    ``async with AsyncKafkaConsumer("orders", bootstrap_servers=..., group_id=...) as consumer``;
    on asyncio ``start()`` and ``stop()`` do as well, from any task and in any order. Options,
    errors of the constructor: as for :class:`~kohort.KafkaConsumer`.

    Listeners (plain or async methods), deserializers and assignors are called in the task that
    calls getmany(), getone(), iteration, start() or stop(). Cancelling any of these loses nothing.
    """

    _asynchronous = True

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._set_up(ConsumerConfig.from_kwargs(**configs), topics)

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...], **injected: Any) -> None:
        config.check_async()
        self._signal = TaskSignal()
        self._root: Root | None = None
        self._performing: int | None = None
        self._stop_later = False
        self._pollers = 0
        self._unsubscribing = False

        async def call(function: Callable[[], Awaitable[T]]) -> T:
            return await function()

        async def serve(
            function: Callable[[], Awaitable[None]],
            perform: Callable[[], Coroutine[Any, Any, None]],
        ) -> None:
            done = False

            async def run() -> None:
                nonlocal done
                await function()
                done = True
                self._signal.notify()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                while not done:
                    event = self._signal.event()
                    await perform()
                    if not done:
                        await event.wait()

        engine = Engine(config, notify=self._signal.notify, clock=anyio.current_time, **injected)
        self._prepare(config, engine, topics)
        self._performer = Performer(engine, call, serve, acall_listener)

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach the cluster and, if subscribed in a group, wait for the first assignment.

        NoBrokersAvailable when no bootstrap server was reachable for ``bootstrap_timeout_ms``. On
        trio use ``async with``: there a task belongs to the block that started it.
        """
        await self._start(in_block=False)

    async def _start(self, *, in_block: bool) -> None:
        self._check_usable()
        if self._root is not None:
            return
        self._root = make_root(in_block=in_block)
        self._pid = os.getpid()
        try:
            await self._root.start(self._engine.run)
            await self._begin()
        except BaseException:
            await self._stop(autocommit=False)
            raise

    async def _begin(self) -> None:
        """Wait for the metadata and the first assignment; what goes wrong later, getmany raises."""
        engine = self._engine
        await engine.cluster.wait_bootstrapped()
        engine.mailbox.errors.clear()
        if engine.coordinator is None or not engine.subscribed:
            return
        async with self._polling("start()"):
            while not engine.host.rebalances and not engine.mailbox.errors:
                event = self._signal.event()
                await self._performer.perform_all()
                if not engine.host.rebalances and not engine.mailbox.errors:
                    await event.wait()

    async def stop(self) -> None:
        """Commit (if automatic), call the listener, leave the group; 5 s at most, may be repeated.

        From inside a listener it returns at once, and the consumer stops when that has returned.
        """
        await self._stop(autocommit=True)

    async def _stop(self, *, autocommit: bool) -> None:
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._performing == anyio.get_current_task().id:
            self._stop_later = True
            return
        root, error = self._root, None
        if root is None:
            self._closed = True
            return
        deadline = anyio.current_time() + CLOSE_TIMEOUT
        try:
            if root.alive:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_TIMEOUT):
                    error = await self._leave("the consumer was stopped", autocommit, deadline)
        finally:
            self._closed = True
            self._signal.notify()
            await root.stop()
            self._performer.abandon()
            self._close_deserializers()
        if error is not None:
            raise error

    async def _leave(self, reason: str, autocommit: bool, deadline: float) -> KafkaError | None:
        self._performing = anyio.get_current_task().id
        try:
            return await self._performer.leave(reason, autocommit, deadline)
        finally:
            self._performing = None

    async def __aenter__(self) -> Self:
        await self._start(in_block=True)
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        await self._stop(autocommit=exc_type is None)

    def __del__(self) -> None:
        if getattr(self, "_root", None) is not None and not self._closed:
            self._warn_unclosed()

    @asynccontextmanager
    async def _polling(self, what: str) -> AsyncIterator[None]:
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
        self._check_started()
        if self._performing == anyio.get_current_task().id:
            raise ReentrantCallError(
                f"{what} was called from inside a listener, deserializer or assignor"
            )
        self._engine.mailbox.entered_poll()
        self._pollers += 1
        try:
            self._engine.note_consumed()
            yield
        finally:
            self._pollers -= 1
            if not self._pollers:
                self._engine.mailbox.left_poll()
            if self._stop_later and not self._closed:
                self._stop_later = False
                await self._stop(autocommit=True)

    def _check_started(self) -> None:
        self._check_usable()
        if self._root is None:
            raise IllegalStateError("not started: use 'async with', or await start() first")

    # -- records ------------------------------------------------------------------------------

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Records:
        """Records that are there (of these partitions only, if any are named), maybe none.

        Waits for some up to ``timeout_ms``; at most ``max_records`` (default
        ``max_poll_records``) in all. Errors as for :meth:`KafkaConsumer.poll`.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 0)
        assert timeout is not None
        count = _arguments.max_records(max_records, self._config.fetch.max_poll_records)
        chosen = frozenset(_arguments.topic_partitions(partitions)) or None
        async with self._polling("getmany()"):
            return await self._poll(timeout, count, chosen)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """The next record (of these partitions only, if any are named), however long it takes."""
        chosen = frozenset(_arguments.topic_partitions(partitions)) or None
        async with self._polling("getone()"):
            while True:
                record = await self._next(chosen)
                if record is not None:
                    return record
                self._check_usable()

    async def _next(self, chosen: frozenset[TopicPartition] | None) -> Record | None:
        record = self._handout.next(chosen)
        if record is None:
            records = await self._poll(1.0, self._config.fetch.max_poll_records, chosen)
            self._handout.load(records)
            record = self._handout.next(chosen)
            self._engine.mailbox.entered_poll()
        return record

    async def _poll(
        self, timeout: float, count: int, chosen: frozenset[TopicPartition] | None
    ) -> Records:
        deadline = anyio.current_time() + timeout
        buffer = self._engine.fetcher.buffer
        # The one point to be cancelled at when data is there: nothing has been taken yet.
        await checkpoint()
        while True:
            event = self._signal.event()
            await self._perform()
            if self._closed:
                raise ConsumerClosedError("the consumer was stopped")
            remaining = deadline - anyio.current_time()
            over = remaining <= 0
            self._performer.raise_errors(over=over)
            if self._handout and (records := self._handout.take(count, chosen)):
                return records
            records = buffer.drain(count, chosen, repeat_errors=over)
            if records or over or self._stop_later:
                return records
            with anyio.move_on_after(remaining):
                await event.wait()

    async def _perform(self) -> None:
        if self._performing is not None:
            return  # another task is at it
        if self._engine.mailbox.work or self._unsubscribing:
            self._performing = anyio.get_current_task().id
            try:
                await self._performer.perform_all()
                if self._unsubscribing:
                    self._unsubscribing = False
                    deadline = anyio.current_time() + CLOSE_TIMEOUT
                    await self._performer.leave("the consumer unsubscribed", True, deadline)
                    self._engine.subscription.unsubscribe()
                    self._engine.subscription_changed()
            finally:
                self._performing = None
                self._signal.notify()

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerClosedError("the consumer is closed; make a new one")
        return self

    async def __anext__(self) -> Record:
        """The next record; ends when another task stops the consumer."""
        if self._handout and not self._engine.mailbox.work and not self._closed:
            record = self._handout.next()
            if record is not None:
                return record
        try:
            return await self.getone()
        except ConsumerClosedError:
            raise StopAsyncIteration from None

    # -- subscription -------------------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str] = (), pattern: Pattern | None = None, listener: Any = None
    ) -> None:
        """As :meth:`KafkaConsumer.subscribe`."""
        self._subscribe(topics, pattern, listener)
        self._unsubscribing = False

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._engine.subscription.topics()

    def unsubscribe(self) -> None:
        """Want nothing; the next getmany() or stop() calls the listener and leaves the group."""
        self._check_usable()
        subscription = self._engine.subscription
        if self._root is None or not subscription.assigned():
            subscription.unsubscribe()
            self._tell_core(self._engine.subscription_changed)
            return
        subscription.mark_pending_revocation(subscription.assigned())
        self._unsubscribing = True
        self._signal.notify()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them in a group."""
        self._assign(partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The partitions of a topic, as far as known without asking; None if it is not known."""
        return set(self._engine.cluster.metadata.partitions_for(topic)) or None

    # -- positions ----------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be returned, looked up if need be. NotAssignedError."""
        self._check_started()
        return await self._engine.position(_arguments.topic_partition(partition), None)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first offset. None named: all assigned. False if not known in time."""
        return await self._reset(partitions, OffsetReset.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue behind the last record. None named: all assigned. False if not in time."""
        return await self._reset(partitions, OffsetReset.LATEST)

    async def _reset(self, partitions: tuple[TopicPartition, ...], strategy: OffsetReset) -> bool:
        self._check_started()
        chosen = self._all_or(partitions)
        for tp in chosen:
            self._engine.subscription.request_reset(tp, strategy)
        self._engine.fetcher.wake()
        try:
            for tp in chosen:
                await self._engine.position(tp, self._config.client.request_timeout_ms / 1000)
        except KafkaTimeoutError:
            return False
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, where there are any; returns them."""
        self._check_started()
        chosen = self._all_or(partitions)
        committed = await self._engine.committed(chosen, None)
        offsets = {tp: None if at is None else at.offset for tp, at in committed.items()}
        for tp, offset in offsets.items():
            if offset is not None:
                self.seek(tp, offset)
        return offsets

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions, assigned or not. KafkaTimeoutError."""
        self._check_started()
        return await self._engine.end_of(_arguments.topic_partitions(partitions), EARLIEST, None)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last records (read_committed: the last stable offsets)."""
        self._check_started()
        return await self._engine.end_of(_arguments.topic_partitions(partitions), LATEST, None)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offsets at or after timestamps (ms since the epoch); None where none is."""
        self._check_started()
        return await self._engine.offsets_at(_arguments.timestamps(timestamps), None)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The end for read_committed, as of the last fetch; None before, -1 if uncommitted."""
        tp = _arguments.topic_partition(partition)
        return self._engine.subscription.last_stable_offset(tp)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When the last answer to a fetch of the partition came, ms since the epoch; or None."""
        tp = _arguments.topic_partition(partition)
        fetched = self._engine.subscription.last_fetch_time(tp)
        if fetched is None:
            return None
        return int((time.time() - (anyio.current_time() - fetched)) * 1000)

    # -- committing ---------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """As :meth:`KafkaConsumer.commit`."""
        self._check_started()
        await self._engine.commit(self._to_commit(offsets), None)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed; None if none."""
        self._require_group()
        self._check_started()
        tp = _arguments.topic_partition(partition)
        found = (await self._engine.committed([tp], None)).get(tp)
        return None if found is None else found.offset

    async def topics(self) -> set[str]:
        """The names of all topics. KafkaTimeoutError."""
        self._check_started()
        return set(await self._engine.all_topics(None))
