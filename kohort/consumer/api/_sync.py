"""The sync API. Its driver runs the engine in a daemon thread.

Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead. Only the
docstring of the class is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, cast, overload

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer.api import _arguments, _plans
from kohort.consumer.api._base import ConsumerBase
from kohort.consumer.driver._delivery import PollDelivery
from kohort.consumer.driver._life import CloseRequest
from kohort.consumer.driver._thread_driver import ThreadDriver
from kohort.fetcher import Records, RecordTarget
from kohort.listeners import RebalanceListener
from kohort.records import ConsumerRecord, K, SyncIteration, V
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    import pyarrow

    from kohort import _options
    from kohort import records as _records
    from kohort.consumer.api import _typing
    from kohort.records import Allocate, TablePlan
else:
    uuid, pyarrow = LazyModule("uuid"), LazyModule("pyarrow")
    _records, _options = LazyModule("kohort.records"), LazyModule("kohort._options")
    _typing = LazyModule("kohort.consumer.api._typing")

T = TypeVar("T")
U = TypeVar("U")


class KafkaConsumer(SyncIteration, ConsumerBase, Generic[K, V]):
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

    _close_hint = "call close(), or use a with block"

    if TYPE_CHECKING:
        _driver: ThreadDriver

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

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> ThreadDriver:
        return ThreadDriver(config)

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
        self._driver.start()

    def wakeup(self) -> None:
        """Let a waiting call raise WakeupError: poll() or iteration.

        It may be called from any thread and from a signal handler. If no call waits, the next one
        raises. KafkaConsumer also raises it in commit() and lookups; an interrupted commit() may
        still succeed. close() and unsubscribe() never raise it. No record is lost, so you can
        continue to poll. If several tasks wait, one of them raises.
        """
        self._driver.wakeup()

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
        self._driver.close(CloseRequest(autocommit, timeout, leave_group))

    def __enter__(self) -> Self:
        self._driver.enter_block()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._note_left(exc_type)
        try:
            self.close()
        finally:
            self._driver.leave_block()

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
        count = _arguments.max_records(max_records, self._driver.config.fetch.max_poll_records)
        delivery = PollDelivery(
            self._driver.engine.fetcher.buffer, self._driver.iteration_buffer, count, RecordTarget()
        )
        self._driver.deliver(delivery, timeout, chosen)
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
        buffer = self._driver.engine.fetcher.buffer
        warn_of_deserializers(self._driver.config, buffer)
        poll = TablePoll(buffer, self._driver.discard_iterated, rows, build, allocate)
        self._driver.deliver(poll, timeout, chosen)
        return poll.table

    if TYPE_CHECKING:

        def __next__(self) -> ConsumerRecord[K, V]: ...

    def __iter__(self) -> Self:
        self._driver.check_iterable()
        return self

    def _step(self) -> ConsumerRecord[K, V]:
        # The coroutine keeps the consumer alive while it waits.
        return self._driver.step()

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
        self._driver.unsubscribe()

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, offsets: _typing.CommitOffsets | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions, or ``{partition: OffsetAndMetadata | offset}``, and wait for it.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises CommitFailedError if the
        consumer lost its membership or the group rebalanced, KafkaTimeoutError, and
        IllegalStateError without a ``group_id``.
        """
        try:
            self._driver.life.check_usable()
            chosen = self._offsets_to_commit(offsets)
            self._driver.call(_plans.commit(self._driver, chosen, timeout_ms))
        finally:
            self._driver.run_commit_callbacks()

    def commit_async(
        self,
        offsets: _typing.CommitOffsets | None = None,
        callback: _typing.CommitCallback | None = None,
    ) -> Future[None]:
        """Start a commit and return its future, without a wait. close() waits for it.

        A later poll(), commit() or close() calls ``callback(offsets, error)``, where ``error`` is
        None after a success. Its default is the option ``default_offset_commit_callback``.

        KafkaConsumer returns a concurrent.futures.Future, whose ``result()`` waits no longer than
        :meth:`commit` and raises its errors. AsyncKafkaConsumer returns a future to await, and
        raises IllegalStateError before it is started.
        """
        self._driver.life.check_usable()
        return self._driver.start_commit(self._offsets_to_commit(offsets), callback)

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
        """Return the committed offset of a partition, or None if there is none.

        With ``metadata=True`` return an OffsetAndMetadata instead of an int. For a collection of
        partitions return a dict. The default of ``timeout_ms`` is ``request_timeout_ms``. Raises
        KafkaTimeoutError, and IllegalStateError without a ``group_id``.
        """
        self._require_group()
        plan = _plans.committed(self._driver, partition, metadata, timeout_ms)
        return self._driver.call(plan)

    # -- the cluster --------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic; empty if the topic does not exist.

        Raises KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return self._driver.call(_plans.partitions_of(self._driver, topic, timeout_ms))

    def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics of the cluster.

        Raises KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return self._driver.call(_plans.topics(self._driver, timeout_ms))

    def topic_ids(
        self, topics: _typing.Topics, timeout_ms: float | None = None
    ) -> dict[str, uuid.UUID]:
        """Return the ids of topics by a new request. A recreated topic has a new id (KIP-516).

        Topics that do not exist are left out. Brokers before Kafka 2.8 have no ids. Raises
        KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return self._driver.call(_plans.topic_ids(self._driver, topics, timeout_ms))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait for the cluster metadata, and with ``refresh=True`` for another update of it.

        The default of ``timeout_ms`` is ``bootstrap_timeout_ms``. Raises NoBrokersAvailable if no
        broker was reached, and KafkaTimeoutError.
        """
        self._driver.call(_plans.bootstrap(self._driver, timeout_ms, refresh))

    # -- positions ----------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record, looked up if necessary.

        Raises NotAssignedError if the partition is not assigned, NoOffsetForPartitionError,
        NoBrokersAvailable, and KafkaTimeoutError after ``timeout_ms``, by default
        ``request_timeout_ms``.
        """
        self._driver.life.check_usable()
        tp = _arguments.topic_partition(partition)
        plan = _plans.position(self._driver, tp, timeout_ms)
        return self._driver.position(plan, tp)

    def seek_to_committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Set positions to the committed offsets, and return these offsets.

        Without arguments it applies to all assigned partitions. Partitions without a committed
        offset keep their position, and their value is None. The default of ``timeout_ms`` is
        ``request_timeout_ms``. Raises NotAssignedError, KafkaTimeoutError, and IllegalStateError
        without a ``group_id``.
        """
        self._driver.life.check_usable()
        self._require_group()
        chosen = self._assigned_or(partitions)
        plan = _plans.committed(self._driver, chosen, False, timeout_ms)
        offsets: dict[TopicPartition, int | None] = self._driver.call(plan)
        self._seek_to(offsets)
        return offsets

    # -- offsets of the log -------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises OffsetsTimeoutError if
        offsets are missing then.
        """
        return self._driver.call(_plans.beginning_offsets(self._driver, partitions, timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, assigned or not.

        With read_committed it is the last stable offset. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
        return self._driver.call(_plans.end_offsets(self._driver, partitions, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a timestamp for each partition; None if none.

        Timestamps are in milliseconds since the epoch. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
        plan = _plans.offsets_for_times(self._driver, timestamps, timeout_ms)
        return self._driver.call(plan)
