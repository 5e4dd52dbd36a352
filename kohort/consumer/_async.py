"""The async API. The engine runs in a background task of the caller's event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, Unpack, cast, overload

from kohort.config import ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer import _arguments
from kohort.consumer._async_requests import AsyncRequests
from kohort.consumer._base import K, V
from kohort.errors import (
    ConsumerClosedError,
    CredentialsUnavailableError,
    IllegalStateError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from kohort.listeners import AsyncRebalanceListener
from kohort.records import AsyncIteration, ConsumerRecord
from kohort.subscription import NO_GROUP, OffsetReset
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    import kohort
    from kohort import _options
    from kohort.consumer import _typing
    from kohort.consumer._tables import TablePoll
    from kohort.records import Allocate, TablePlan
else:
    kohort, pyarrow = LazyModule("kohort"), LazyModule("pyarrow")
    _options, _typing = LazyModule("kohort._options"), LazyModule("kohort.consumer._typing")

T = TypeVar("T")
U = TypeVar("U")
Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[K, V]]]


class AsyncKafkaConsumer(AsyncIteration, AsyncRequests, Generic[K, V]):
    """A client that reads topics, alone or as a member of a consumer group, on asyncio or trio.

    ``async with AsyncKafkaConsumer("orders", bootstrap_servers=..., group_id=...) as consumer``

    On asyncio you can also call ``start()`` and ``stop()``, from any task. The options and the
    errors of the constructor are those of :class:`~kohort.KafkaConsumer`.

    With automatic commits, leaving the block commits all positions. If an exception leaves the
    block, the records of the last getmany(), or the current record of an iteration, are not
    committed. They are read again after a restart.

    Listeners, deserializers and assignors are called in the task that calls getmany(), getone(),
    iteration, start() or stop(). Methods of listeners may be coroutines. Cancelling these calls
    loses no record. Between them, listeners and assignors run in a task of the consumer, unless
    the caller holds returned records (option ``rebalance_without_poll``).

    Iteration, getone() and getmany() let the event loop run at least every 10 ms, also while
    records are buffered. A deserializer, or user code without an ``await``, can block it longer.
    """

    __module__ = "kohort"

    @overload
    def __init__(
        self: AsyncKafkaConsumer[bytes, bytes],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **options: Unpack[_options.AsyncConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncKafkaConsumer[K, bytes],
        *topics: str,
        key_deserializer: _typing.Deserializer[K],
        value_deserializer: None = None,
        **options: Unpack[_options.AsyncConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncKafkaConsumer[bytes, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[V],
        **options: Unpack[_options.AsyncConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncKafkaConsumer[K, V],
        *topics: str,
        key_deserializer: _typing.Deserializer[K],
        value_deserializer: _typing.Deserializer[V],
        **options: Unpack[_options.AsyncConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **options: Unpack[_options.AsyncConsumerOptions],
    ) -> None:
        configs = cast("dict[str, Any]", options)
        conceal_secrets(configs)
        config = ConsumerConfig.from_kwargs(
            key_deserializer=key_deserializer, value_deserializer=value_deserializer, **configs
        )
        self._set_up(config, topics)

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
    ) -> AsyncKafkaConsumer[bytes, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: None = None,
    ) -> AsyncKafkaConsumer[T, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[U],
    ) -> AsyncKafkaConsumer[bytes, U]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: _typing.Deserializer[U],
    ) -> AsyncKafkaConsumer[T, U]: ...

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
    ) -> Any:
        """Return a consumer with the dotted names of Java and librdkafka as options.

        For instance ``{"group.id": "billing"}``. The errors are those of the constructor and have
        the names as they were given.
        """
        properties = conceal_properties(properties)
        return cls._from_properties(properties, topics, key_deserializer, value_deserializer)

    # -- records ------------------------------------------------------------------------------

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> Records[K, V]:
        """Return buffered records by partition, or ``{}`` if none arrive in ``timeout_ms``.

        With arguments, it returns only records of these partitions. The default timeout of 0 ms
        does not wait. It returns at most ``max_records`` records of all partitions together, by
        default ``max_poll_records``. The errors are those of :meth:`KafkaConsumer.poll`.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 0)
        assert timeout is not None
        count = _arguments.max_records(max_records, self._config.fetch.max_poll_records)
        chosen = frozenset(_arguments.topic_partitions(partitions)) or None
        async with self._polling("getmany()"):
            records = await self._poll(timeout, count, chosen)
            self._engine.callback_queue.has_returned_records |= bool(records)
            return records

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K, V]:
        """Wait for the next record without a timeout, and return it.

        With arguments, it returns only records of these partitions. Raises the errors of
        :meth:`KafkaConsumer.poll`, and ConsumerClosedError if the consumer is stopped meanwhile.
        """
        chosen = frozenset(_arguments.topic_partitions(partitions)) or None
        async with self._polling("getone()"):
            if self._clock() >= self._yield_at:
                await self._yield_to_loop()
            while not self._pending_stop:
                record = await self._next_record(chosen)
                if record is not None:
                    self._engine.callback_queue.has_returned_records = True
                    return record
        raise ConsumerClosedError("the consumer was stopped")

    async def _next_record(
        self, chosen: frozenset[TopicPartition] | None
    ) -> ConsumerRecord[K, V] | None:
        self._engine.callback_queue.raise_wakeup()
        # Rebalances run between two records, because the buffered ones may last for hours.
        waits = self._engine.callback_queue.pending or self._is_unsubscribing or self._unpolled_task
        record = None if waits else self._iteration_buffer.next(chosen)
        if record is None:
            records = await self._poll(1.0, self._drain_size.count, chosen, buffered=False)
            self._iteration_buffer.load(records)
            record = self._iteration_buffer.next(chosen)
        return record

    async def poll_arrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> pyarrow.RecordBatch:
        """Return buffered records as :meth:`KafkaConsumer.poll_arrow` does.

        With arguments, it returns only rows of these partitions.
        """
        # Imports come before the poll, so that Ctrl-C during an import loses no records.
        from kohort.consumer._tables import require_pyarrow
        from kohort.records import TablePlan, allocate_in_arrow, to_arrow

        require_pyarrow()
        table = await self._poll_table(
            partitions, timeout_ms, max_records, to_arrow, allocate_in_arrow
        )
        return to_arrow(TablePlan()) if table is None else table

    async def poll_batches(
        self,
        *partitions: TopicPartition,
        timeout_ms: float = 0,
        max_records: int | None = None,
    ) -> list[kohort.RecordColumns]:
        """Return buffered records as :meth:`KafkaConsumer.poll_batches` does.

        With arguments, it returns only columns of these partitions.
        """
        from kohort.records import allocate_in_python, to_columns

        return (
            await self._poll_table(
                partitions, timeout_ms, max_records, to_columns, allocate_in_python
            )
            or []
        )

    async def _poll_table(
        self,
        partitions: tuple[TopicPartition, ...],
        timeout_ms: float,
        max_records: int | None,
        build: Callable[[TablePlan], T],
        allocate: Allocate,
    ) -> T | None:
        timeout = _arguments.timeout_seconds(timeout_ms, 0)
        assert timeout is not None
        from kohort.consumer._tables import TablePoll
        from kohort.records import MAX_ROWS

        rows = _arguments.max_records(max_records, MAX_ROWS)
        chosen = frozenset(_arguments.topic_partitions(partitions)) or None
        poll = TablePoll(self._engine, self._iteration_buffer, rows, build, allocate)
        try:
            async with self._polling("getmany()"):
                await self._poll(timeout, 0, chosen, table=poll)
                self._engine.callback_queue.has_returned_records |= poll.table is not None
        except BaseException:
            poll.undo()
            raise
        return poll.table

    async def _poll(
        self,
        timeout: float,
        count: int,
        chosen: frozenset[TopicPartition] | None,
        *,
        buffered: bool = True,
        table: TablePoll[Any] | None = None,
    ) -> Records[K, V]:
        """Return records of the iteration buffer or of the fetcher's.

        With ``buffered=False``, return ``{}`` as soon as the iteration buffer has a record. With
        ``table``, the rows go there and ``{}`` is returned.
        """
        deadline = self._clock() + timeout
        buffer = self._engine.fetcher.buffer
        # If records are buffered, a cancellation is raised only here, before any are taken.
        await self._yield_to_loop()
        while True:
            event = self._signal.event()
            await self._run_callbacks()
            self._check_open()
            remaining = deadline - self._clock()
            timed_out = remaining <= 0
            self._callback_runner.raise_errors(timed_out=timed_out)
            if self._pending_stop:
                return {}
            if table is not None:
                if table.drain(chosen, repeat_errors=timed_out) or timed_out:
                    return {}
                await event.wait(remaining)
                continue
            if (
                buffered
                and self._iteration_buffer
                and (records := self._iteration_buffer.take(count, chosen))
            ):
                return records
            if not buffered and self._iteration_buffer.has_next(chosen):
                return {}
            began = self._clock()
            records = buffer.drain(count, chosen, repeat_errors=timed_out)
            if not buffered:
                self._drain_size.adapt(records.values(), self._clock() - began)
            if records or timed_out:
                return records
            await event.wait(remaining)

    if TYPE_CHECKING:

        def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K, V]]: ...

    def __aiter__(self) -> Self:
        if self._closed:
            raise ConsumerClosedError("the consumer is closed. Create a new one")
        return self

    async def _step(self) -> ConsumerRecord[K, V]:
        """Return the next record when the run of AsyncIteration.__anext__() has ended."""
        run = self._record_run
        if self._clock() >= self._run_until:
            await self._yield_to_loop()
            session = self._engine.coordinator or NO_GROUP
            run.until = self._run_until = min(self._yield_at, session.confirmed_until)
        run.now = self._clock()
        # No call follows: CPython runs signal handlers in calls, so Ctrl-C cannot come between.
        if run.index < run.stop and not run.wake_up.is_set and run.now < run.until:
            run.wake_up.taken_at = run.now
            record: ConsumerRecord[K, V] = run.records[run.index]
            run.index += 1
            return record
        callback_queue = self._engine.callback_queue
        self._iteration_buffer.end_run()
        self._engine.subscription.wake_up.is_set = False
        busy = (
            callback_queue.pending
            or callback_queue.is_wakeup_requested
            or self._closed
            or self._stopping
            or self._unpolled_task
        )
        if self._iteration_buffer and not busy:
            given = self._iteration_buffer.next_after_consumed()
            if given is not None:
                callback_queue.has_returned_records = True
                if not self._active_polls:
                    callback_queue.leave_poll()
                self._iteration_buffer.start_run(self._run_until)
                return given
        try:
            return await self.getone()
        except ConsumerClosedError:
            raise StopAsyncIteration from None

    # -- subscription -------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topics: _typing.Topics,
        pattern: None = None,
        listener: AsyncRebalanceListener | None = None,
    ) -> None: ...

    @overload
    def subscribe(
        self, *, pattern: _typing.Pattern, listener: AsyncRebalanceListener | None = None
    ) -> None: ...

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: _typing.Pattern | None = None,
        listener: AsyncRebalanceListener | None = None,
    ) -> None:
        """Subscribe as :meth:`KafkaConsumer.subscribe` does, and join the group in the background.

        With ``rebalance_without_poll="never"`` the next poll joins it.
        """
        begins = not self._engine.is_subscribed
        self._subscribe(topics, pattern, listener)
        self._is_unsubscribing = False
        if begins and self._background_task is not None:
            self._engine.callback_queue.note_call()

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics. No I/O."""
        self._check_process()
        return self._engine.subscription.topics()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions, without a group; no partitions mean unsubscribe().

        It replaces an earlier assign(), whose consumed offsets are committed in the background if
        commits are automatic. Raises IllegalStateError after subscribe().
        """
        if self._is_unsubscribing:
            raise IllegalStateError(
                "assign() failed: unsubscribe() has not called the listener yet. Call and await "
                "getmany() before assign()"
            )
        chosen = _arguments.topic_partitions(partitions)
        if chosen:
            if self._background_task is not None:
                self._engine.keep_replaced_offsets()
            self._assign(chosen)
        else:
            self.unsubscribe()

    # -- positions ----------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record, looked up if necessary.

        Raises NotAssignedError if the partition is not assigned, NoOffsetForPartitionError, and
        KafkaTimeoutError after ``request_timeout_ms``.
        """
        self._check_running()
        tp = _arguments.topic_partition(partition)
        return await self._engine.position(tp, self._config.client.request_timeout_ms / 1000)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Set the position to the first offset, and wait until it is known.

        Without arguments it applies to all assigned partitions. Returns False if a position is not
        known after ``request_timeout_ms``. Raises NotAssignedError.
        """
        return await self._reset(partitions, OffsetReset.EARLIEST)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Set the position to the log end offset, and wait until it is known.

        Arguments, result and errors are those of :meth:`seek_to_beginning`.
        """
        return await self._reset(partitions, OffsetReset.LATEST)

    async def _reset(self, partitions: tuple[TopicPartition, ...], strategy: OffsetReset) -> bool:
        self._check_running()
        chosen = self._assigned_or(partitions)
        for tp in chosen:
            self._engine.subscription.request_reset(tp, strategy)
        self._engine.fetcher.wake()
        try:
            for tp in chosen:
                await self._engine.position(tp, self._config.client.request_timeout_ms / 1000)
        except (NoBrokersAvailable, CredentialsUnavailableError):
            raise
        except KafkaTimeoutError:
            return False
        return True

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Set positions to the committed offsets, and return these offsets.

        Without arguments it applies to all assigned partitions. Partitions without a committed
        offset keep their position, and their value is None. Raises NotAssignedError,
        KafkaTimeoutError, and IllegalStateError without a ``group_id``.
        """
        self._check_running()
        chosen = self._assigned_or(partitions)
        committed = await self._engine.committed(chosen, None)
        offsets = {tp: None if at is None else at.offset for tp, at in committed.items()}
        for tp, offset in offsets.items():
            if offset is not None:
                self.seek(tp, offset)
        return offsets
