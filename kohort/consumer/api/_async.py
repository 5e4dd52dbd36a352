"""The async API. The engine runs in a background task of the caller's event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from kohort.config import ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer.api import _arguments
from kohort.consumer.api._async_requests import AsyncRequests
from kohort.consumer.driver._delivery import Delivery, IterationDelivery, PollDelivery
from kohort.errors import (
    ConsumerClosedError,
)
from kohort.fetcher import Records, RecordTarget
from kohort.listeners import AsyncRebalanceListener
from kohort.records import AsyncIteration, ConsumerRecord, K, V
from kohort.subscription import NO_GROUP
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kohort import _options
    from kohort import records as _records
    from kohort.consumer.api import _typing
    from kohort.records import Allocate, TablePlan
else:
    _records, pyarrow = LazyModule("kohort.records"), LazyModule("pyarrow")
    _options, _typing = LazyModule("kohort._options"), LazyModule("kohort.consumer.api._typing")

T = TypeVar("T")
U = TypeVar("U")


class AsyncKafkaConsumer(AsyncIteration, AsyncRequests, Generic[K, V]):
    """A client that reads topics, alone or as a member of a consumer group, on asyncio or trio.

    ``async with AsyncKafkaConsumer("orders", bootstrap_servers=..., group_id=...) as consumer``

    The options, methods and errors are those of :class:`~kohort.KafkaConsumer`. Methods that may
    wait for a broker or a listener are awaited, all others are plain functions. ``async with``,
    ``start()`` or the first awaited call starts the consumer. On trio only ``async with`` can.

    With automatic commits, leaving the block commits all positions. If an exception leaves the
    block, the records of the last poll(), or the current record of an iteration, are not
    committed. They are read again after a restart.

    Deserializers and assignors are called in the task that polls or iterates. Listeners are called
    in a task of the consumer, and their methods may be coroutines. poll(), iteration and start()
    wait for them. Cancelling these calls loses no record, and the listener continues. Between these
    calls, listeners and assignors run in that task if the caller holds no returned records (option
    ``rebalance_without_poll``).

    poll() and iteration let the event loop run at least every 10 ms, also while records are
    buffered. A deserializer, or user code without an ``await``, can block it longer.
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
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> AsyncKafkaConsumer[bytes, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: None = None,
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> AsyncKafkaConsumer[T, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[U],
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> AsyncKafkaConsumer[bytes, U]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: _typing.Deserializer[U],
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> AsyncKafkaConsumer[T, U]: ...

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> Any:
        """Return a consumer with the dotted names of Java and librdkafka as options.

        For instance ``{"group.id": "billing"}``. The errors are those of the constructor and have
        the names as they were given. An option that changes nothing for a reader is ignored with a
        DEBUG line. ``unsupported="warn"`` logs other names that are unknown or not supported, as
        Java does, in place of an error.
        """
        properties = conceal_properties(properties)
        return cls._from_properties(
            properties, topics, key_deserializer, value_deserializer, unsupported
        )

    # -- records ------------------------------------------------------------------------------

    async def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> Records[K, V]:
        """Return buffered records by partition, or ``{}`` if none arrive in ``timeout_ms``.

        The default timeout of 0 ms does not wait. It returns at most ``max_records`` records of
        all partitions together, by default ``max_poll_records``. With ``partitions``, it returns
        only records of these. Positions move past the returned records. Rebalances run in this
        call, so it waits for the listener.

        Raises DataError for bad data of a partition, RebalanceListenerError, NoBrokersAvailable,
        WakeupError and other KafkaErrors. No error loses records, so you can continue to poll.
        """
        timeout, chosen = _arguments.poll_arguments(timeout_ms, partitions)
        count = _arguments.max_records(max_records, self._config.fetch.max_poll_records)
        delivery = PollDelivery(
            self._engine.fetcher.buffer, self._iteration_buffer, count, RecordTarget()
        )
        await self._deliver(delivery, timeout, chosen)
        return delivery.target.records

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> pyarrow.RecordBatch:
        """Return buffered records as one ``pyarrow.RecordBatch``, maybe with no rows.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset,
        timestamp, timestampType and headers. Timestamps are in ms and UTC, or null if unknown.
        Rows of one partition are adjacent. Deserializers do not run. The first call warns if one
        is set.

        It waits up to ``timeout_ms`` milliseconds. It returns at most ``max_records`` rows, by
        default without a limit, and 4 MiB of keys, values and headers, or one larger batch. With
        ``partitions``, it returns only rows of these. Raises ImportError without pyarrow, and the
        errors of :meth:`poll`.
        """
        # Imports come before the poll, so that Ctrl-C interrupts none of them after records came.
        from kohort.consumer.driver._tables import require_pyarrow
        from kohort.records import TablePlan, allocate_in_arrow, to_arrow

        require_pyarrow()
        table = await self._poll_table(
            timeout_ms, max_records, partitions, to_arrow, allocate_in_arrow
        )
        return to_arrow(TablePlan()) if table is None else table

    async def poll_batches(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> list[_records.RecordColumns]:
        """Return buffered records as columns, one object for each partition, without pyarrow.

        Arguments, limits, errors and the warning are those of :meth:`poll_arrow`. The columns share
        one piece of memory. :class:`~kohort.RecordTable` makes them one table.
        """
        from kohort.records import allocate_in_python, to_columns

        tables = await self._poll_table(
            timeout_ms, max_records, partitions, to_columns, allocate_in_python
        )
        return tables or []

    async def _poll_table(
        self,
        timeout_ms: float,
        max_records: int | None,
        partitions: Iterable[TopicPartition] | None,
        build: Callable[[TablePlan], T],
        allocate: Allocate,
    ) -> T | None:
        from kohort.consumer.driver._tables import TablePoll, warn_of_deserializers
        from kohort.records import MAX_ROWS

        timeout, chosen = _arguments.poll_arguments(timeout_ms, partitions)
        rows = _arguments.max_records(max_records, MAX_ROWS)
        buffer = self._engine.fetcher.buffer
        warn_of_deserializers(self._config, buffer)
        poll = TablePoll(buffer, self._discard_iterated, rows, build, allocate)
        await self._deliver(poll, timeout, chosen)
        return poll.table

    async def _deliver(
        self, delivery: Delivery, timeout: float, chosen: frozenset[TopicPartition] | None
    ) -> None:
        try:
            async with self._polling("poll()"):
                taken = await self._poll(delivery, timeout, chosen)
                self._engine.callback_queue.has_returned_records |= taken
        except BaseException:
            delivery.roll_back()
            raise

    async def _next(self) -> ConsumerRecord[K, V]:
        """Wait for the next record. Raise ConsumerClosedError if the consumer is closed."""
        async with self._polling("iteration"):
            if self._clock() >= self._yield_at:
                await self._yield_to_loop()
            while not self._life.close_request:
                record = await self._next_record()
                if record is not None:
                    self._engine.callback_queue.has_returned_records = True
                    return record
        raise ConsumerClosedError("the consumer was closed")

    async def _next_record(self) -> ConsumerRecord[K, V] | None:
        self._engine.callback_queue.raise_wakeup()
        # Rebalances run between two records, because the buffered ones may last for hours.
        waits = self._engine.callback_queue.pending or self._callbacks.is_spawned
        record = None if waits else self._iteration_buffer.next()
        if record is None:
            await self._refill()
            record = self._iteration_buffer.next()
        return record

    async def _refill(self) -> None:
        buffer, size = self._engine.fetcher.buffer, self._drain_size
        delivery = IterationDelivery(buffer, self._iteration_buffer, size, self._clock)
        try:
            await self._poll(delivery, 1.0, None)
            delivery.commit()
        except BaseException:
            delivery.roll_back()
            raise

    async def _poll(
        self, delivery: Delivery, timeout: float, chosen: frozenset[TopicPartition] | None
    ) -> bool:
        """Run callbacks and wait until the delivery may end. Return True if it has records."""
        deadline = self._clock() + timeout
        # If records are buffered, a cancellation is raised only here, before any are taken.
        await self._yield_to_loop()
        while True:
            event = self._signal.event()
            await self._callbacks.run()
            self._check_open()
            remaining = deadline - self._clock()
            timed_out = remaining <= 0
            self._callback_runner.raise_errors(timed_out=timed_out)
            if self._life.close_request:
                return False
            taken = delivery.take(chosen, repeat_errors=timed_out)
            if taken or timed_out:
                return taken
            await event.wait(remaining)

    if TYPE_CHECKING:

        def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K, V]]: ...

    def __aiter__(self) -> Self:
        if self._life.is_closed:
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
        # No call follows, so Ctrl-C cannot come between (see _delivery).
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
            or self._life.is_ending
            or self._callbacks.is_spawned
        )
        if self._iteration_buffer and not busy:
            given = self._iteration_buffer.next_after_consumed()
            if given is not None:
                callback_queue.has_returned_records = True
                if not self._callbacks.active_polls:
                    callback_queue.leave_poll()
                self._iteration_buffer.start_run(self._run_until)
                return given
        try:
            return await self._next()
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
        """Subscribe to topics, or to all topics whose names match ``pattern`` from their start.

        A :class:`~kohort.SubscriptionPattern` is evaluated by the brokers and matches whole names.
        It replaces an earlier subscription. With a ``group_id``, the next poll() joins the group,
        which assigns the partitions. AsyncKafkaConsumer also joins it without a poll, unless
        ``rebalance_without_poll="never"``. Without a group, all partitions are assigned to this
        consumer. ``listener`` is a :class:`~kohort.ConsumerRebalanceListener`.

        Raises IllegalStateError after assign() or for topics together with a pattern, ValueError
        for no or illegal topics, and TypeError for arguments of other types.
        """
        begins = not self._engine.subscription.is_subscribed
        self._subscribe(topics, pattern, listener)
        self._life.is_unsubscribing = False
        if begins and self._background_task is not None:
            self._engine.callback_queue.note_call()
