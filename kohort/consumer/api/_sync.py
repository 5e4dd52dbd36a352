"""The sync API. The engine runs in a daemon thread, the consumer thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer.api import _arguments
from kohort.consumer.api._sync_requests import SyncRequests
from kohort.consumer.driver._delivery import Delivery, IterationDelivery, PollDelivery
from kohort.consumer.driver._iteration_buffer import RUN_SECONDS
from kohort.errors import (
    KafkaError,
)
from kohort.fetcher import Records, RecordTarget
from kohort.listeners import RebalanceListener
from kohort.records import ConsumerRecord, K, SyncIteration, V
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


class KafkaConsumer(SyncIteration, SyncRequests, Generic[K, V]):
    """A client that reads topics, alone or as a member of a consumer group.

    ``KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")``

    ``docs/reference/options.md`` lists all options. The constructor does no I/O. It raises only
    UnknownOptionError, InvalidOptionError and UnsupportedOptionError.

    Only one thread at a time may use a consumer. Listeners, deserializers and assignors are called
    on that thread, inside poll(), iteration, close() and unsubscribe().

    With automatic commits, leaving a ``with`` block commits all positions. If an exception leaves
    the block, the records of the last poll(), or the current record of an iteration, are not
    committed. They are read again after a restart.

    Every call has a time limit, also if the consumer thread does not respond. The limit is its
    ``timeout_ms``, or else ``request_timeout_ms``, plus one second. After it the call raises
    KafkaTimeoutError. If the system refuses a thread, calls that need one raise ThreadStartError,
    and a later call tries again.
    """

    __module__ = "kohort"

    @overload
    def __init__(
        self: KafkaConsumer[bytes, bytes],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: None = None,
        **options: Unpack[_options.ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaConsumer[K, bytes],
        *topics: str,
        key_deserializer: _typing.Deserializer[K],
        value_deserializer: None = None,
        **options: Unpack[_options.ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaConsumer[bytes, V],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[V],
        **options: Unpack[_options.ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: KafkaConsumer[K, V],
        *topics: str,
        key_deserializer: _typing.Deserializer[K],
        value_deserializer: _typing.Deserializer[V],
        **options: Unpack[_options.ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        *topics: str,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **options: Unpack[_options.ConsumerOptions],
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
    ) -> KafkaConsumer[bytes, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: None = None,
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> KafkaConsumer[T, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[U],
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> KafkaConsumer[bytes, U]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: _typing.Deserializer[U],
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> KafkaConsumer[T, U]: ...

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

    def poll(
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
        self._deliver(delivery, timeout, chosen)
        return delivery.target.records

    def poll_arrow(
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
        table = self._poll_table(timeout_ms, max_records, partitions, to_arrow, allocate_in_arrow)
        return to_arrow(TablePlan()) if table is None else table

    def poll_batches(
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

        tables = self._poll_table(
            timeout_ms, max_records, partitions, to_columns, allocate_in_python
        )
        return tables or []

    def _poll_table(
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
        self._deliver(poll, timeout, chosen)
        return poll.table

    def _deliver(
        self, delivery: Delivery, timeout: float, chosen: frozenset[TopicPartition] | None
    ) -> None:
        try:
            self._run_as_owner(
                "poll()", lambda: self._poll_loop.run(delivery, timeout, chosen, self._pause)
            )
        except BaseException:
            delivery.roll_back()
            raise

    def _pause(self) -> bool:
        """Let the consumer thread run, in a poll() without a timeout. Return True if notified."""
        thread = self._thread
        return thread is not None and self._pauses.pause(thread.is_busy)

    if TYPE_CHECKING:

        def __next__(self) -> ConsumerRecord[K, V]: ...

    def __iter__(self) -> Self:
        return self

    def _step(self) -> ConsumerRecord[K, V]:
        """Return the next record when the run of SyncIteration.__next__() has ended."""
        if self._life.is_closed:
            raise StopIteration
        given = self._iteration_buffer.delivered_count
        try:
            record = self._next_buffered()
            if record is None:
                record = self._run_as_owner("iteration", self._next)
        except BaseException:
            if self._iteration_buffer.delivered_count != given:
                self._iteration_buffer.undo_next()
            raise
        if record is None:
            raise StopIteration
        return record

    def _next_buffered(self) -> ConsumerRecord[K, V] | None:
        """Return the next buffered record, or None if a poll is needed first."""
        callback_queue = self._callback_queue
        self._iteration_buffer.end_run()
        self._engine.subscription.wake_up.is_set = False
        if (
            not self._iteration_buffer
            or callback_queue.pending
            or callback_queue.is_wakeup_requested
            or not self._owner_lock.is_free
        ):
            return None
        self._life.check_usable()
        record = self._iteration_buffer.next_after_consumed()
        if record is not None:
            callback_queue.leave_poll()
            session = self._engine.coordinator or NO_GROUP
            self._iteration_buffer.start_run(
                min(time.monotonic() + RUN_SECONDS, session.confirmed_until)
            )
        return record

    def _next(self) -> ConsumerRecord[K, V] | None:
        deadline = time.monotonic() + self._config.consumer_timeout_ms / 1000
        timed_out = False
        self._engine.callback_queue.raise_wakeup()
        # Rebalances run between two records, because the buffered ones may last for hours.
        record = None if self._callback_runner.has_callbacks else self._iteration_buffer.next()
        while record is None:
            if timed_out or self._life.close_request is not None:
                return None
            remaining = deadline - time.monotonic()
            timed_out = remaining <= 0
            self._refill(max(0.0, min(remaining, 1.0)))
            record = self._iteration_buffer.next()
        return record

    def _refill(self, timeout: float) -> None:
        buffer, size = self._engine.fetcher.buffer, self._drain_size
        delivery = IterationDelivery(buffer, self._iteration_buffer, size, time.monotonic)
        try:
            self._poll_loop.run(delivery, timeout, None, self._pause)
            delivery.commit()
        except BaseException:
            delivery.roll_back()
            raise

    # -- subscription -------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        topics: _typing.Topics,
        pattern: None = None,
        listener: RebalanceListener | None = None,
    ) -> None: ...

    @overload
    def subscribe(
        self, *, pattern: _typing.Pattern, listener: RebalanceListener | None = None
    ) -> None: ...

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: _typing.Pattern | None = None,
        listener: RebalanceListener | None = None,
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
        self._subscribe(topics, pattern, listener)

    def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, and remove all topics.

        It takes at most 5 seconds. It also removes the partitions of assign(). Raises
        RebalanceListenerError.
        """
        if self._thread is None:
            self._life.check_usable()
            self._engine.subscription.unsubscribe()
            return
        error = self._run_as_owner("unsubscribe()", self._unsubscribe)
        if error is not None:
            raise error

    def _unsubscribe(self) -> KafkaError | None:
        try:
            deadline = time.monotonic() + CLOSE_TIMEOUT
            return self._leave("the consumer unsubscribed", True, deadline)
        finally:
            self._engine.subscription.unsubscribe()
            self._call_soon(self._engine.finish_leave)
