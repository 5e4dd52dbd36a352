"""KafkaConsumer: the synchronous face. The core runs in a daemon thread, the heartbeat thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, Unpack, cast, overload

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer import _arguments
from kohort.consumer._base import K, V
from kohort.consumer._callback_runner import run_inline
from kohort.consumer._engine import EARLIEST, LATEST
from kohort.consumer._iteration_buffer import RUN_SECONDS
from kohort.consumer._sync_lifecycle import SyncLifecycle
from kohort.errors import (
    CredentialsUnavailableError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from kohort.listeners import RebalanceListener
from kohort.records import ConsumerRecord, SyncIteration
from kohort.subscription import NO_GROUP, OffsetReset
from kohort.types import LazyModule, OffsetAndTimestamp, TopicPartition

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


class KafkaConsumer(SyncIteration, SyncLifecycle, Generic[K, V]):
    """Reads topics, alone or as a member of a consumer group.

    ``KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")``; all options
    are in ``docs/configuration.md``. The constructor does no I/O: UnknownOptionError,
    InvalidOptionError and UnsupportedOptionError are all it raises.

    One thread at a time may use a consumer. Listeners, deserializers and assignors are called on
    that thread, inside poll() (or iteration), close() and unsubscribe().

    With automatic commits, leaving a ``with`` block commits all positions. If an exception leaves
    it, the records of the last poll(), or the record in hand, count as unfinished: they come again.

    Every call has a limit, also while the consumer thread does not answer: its ``timeout_ms``, else
    ``request_timeout_ms``, and one second more. It then raises KafkaTimeoutError. If no thread can
    be started, each call that needs one raises ThreadStartError, and a later call tries again.
    """

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
    ) -> KafkaConsumer[bytes, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: None = None,
    ) -> KafkaConsumer[T, bytes]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: None = None,
        value_deserializer: _typing.Deserializer[U],
    ) -> KafkaConsumer[bytes, U]: ...

    @overload
    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        key_deserializer: _typing.Deserializer[T],
        value_deserializer: _typing.Deserializer[U],
    ) -> KafkaConsumer[T, U]: ...

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

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records[K, V]:
        """Records that are there, waiting for some up to ``timeout_ms``; maybe none.

        At most ``max_records`` (default ``max_poll_records``) in all. Positions move past what is
        returned. A rebalance goes on in here: the listener is called on this thread.

        Raises DataError for a partition's bad data, RebalanceListenerError, NoBrokersAvailable and
        other KafkaErrors; nothing is lost by any of them, and polling may go on.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 0)
        assert timeout is not None
        count = _arguments.max_records(max_records, self._config.fetch.max_poll_records)
        records: Records[K, V] = {}

        def poll() -> None:
            nonlocal records
            records = self._poll(timeout, count)

        try:
            self._run_as_owner("poll()", poll)
        except BaseException:
            self._iteration_buffer.load(records, undelivered=True)  # Ctrl-C on the way out
            raise
        return records

    def poll_arrow(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> pyarrow.RecordBatch:
        """As :meth:`poll`, as a ``pyarrow.RecordBatch``: the rows that are there, maybe none.

        Columns as in Spark's Kafka source: key, value, topic, partition, offset, timestamp (ms,
        UTC; null if unknown), timestampType, headers. Rows of one partition follow each other.
        Deserializers do not run. At most ``max_records`` rows (default: no limit) and 4 MiB of
        keys, values and headers, or one batch that has more. ImportError without pyarrow.
        """
        # Tables are imported before anything is taken: Ctrl-C during an import loses nothing.
        from kohort.consumer._tables import require_pyarrow
        from kohort.records import TablePlan, allocate_in_arrow, to_arrow

        require_pyarrow()
        table = self._poll_table(timeout_ms, max_records, to_arrow, allocate_in_arrow)
        return to_arrow(TablePlan()) if table is None else table

    def poll_batches(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> list[kohort.RecordColumns]:
        """As :meth:`poll_arrow` without pyarrow: columns of each partition, read in place."""
        from kohort.records import allocate_in_python, to_columns

        return self._poll_table(timeout_ms, max_records, to_columns, allocate_in_python) or []

    def _poll_table(
        self,
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
        poll = TablePoll(self._engine, self._iteration_buffer, rows, build, allocate)
        try:
            self._run_as_owner("poll()", lambda: self._poll(timeout, 0, table=poll))
        except BaseException:
            poll.undo()  # Ctrl-C on the way out
            raise
        return poll.table

    def _poll(
        self,
        timeout: float,
        count: int,
        *,
        buffered: bool = True,
        table: TablePoll[Any] | None = None,
    ) -> Records[K, V]:
        """``held``: with what is held for iteration; else nothing, as soon as some may be given.

        ``table``: the rows go there, and nothing is returned.
        """
        deadline = time.monotonic() + timeout
        buffer, iteration = self._engine.fetcher.buffer, self._iteration_buffer
        runner = self._callback_runner
        while True:
            self._signal.clear()
            if runner.has_callbacks:
                run_inline(runner.run_all())
            remaining = deadline - time.monotonic()
            timed_out = remaining <= 0
            runner.raise_errors(timed_out=timed_out)
            if self._pending_close is not None:
                return {}
            if table is not None:
                if table.drain(None, repeat_errors=timed_out):
                    return {}
                if timed_out and not self._pause_for_thread(timeout):
                    return {}
                self._signal.wait(remaining)
                continue
            if buffered and iteration and (records := iteration.take(count)):
                return records
            if not buffered and iteration.has_next():
                return {}
            records = buffer.drain(count, repeat_errors=timed_out)
            if records or (timed_out and not self._pause_for_thread(timeout)):
                return records
            self._signal.wait(remaining)

    def _pause_for_thread(self, timeout: float) -> bool:
        """Let the consumer thread run, for a poll() without a wait. True if there is news."""
        thread = self._thread
        return timeout <= 0 and thread is not None and self._pauses.pause(thread.is_busy)

    if TYPE_CHECKING:

        def __next__(self) -> ConsumerRecord[K, V]: ...

    def __iter__(self) -> Self:
        return self

    def _step(self) -> ConsumerRecord[K, V]:
        """Return the next record where SyncIteration.__next__() has none at hand."""
        if self._closed:
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
        """The next record without much ado, if there is nothing else to do."""
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
        self._check_usable()
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
        # A rebalance goes on between two records: what is held may last for hours.
        record = None if self._callback_runner.has_callbacks else self._iteration_buffer.next()
        while record is None:
            if timed_out or self._pending_close is not None:
                return None
            remaining = deadline - time.monotonic()
            timed_out = remaining <= 0
            self._refill(max(0.0, min(remaining, 1.0)))
            record = self._iteration_buffer.next()
        return record

    def _refill(self, timeout: float) -> None:
        drained: Records[K, V] = {}
        try:
            drained = self._poll(timeout, self._drain_size.count, buffered=False)
            self._drain_size.adapt(drained.values())
            self._iteration_buffer.load(drained)
        except BaseException:
            self._iteration_buffer.load(drained)  # what Ctrl-C kept from being held
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
        """Read these topics, or all whose names the pattern matches from the start.

        Replaces an earlier subscription. With a group_id the group shares the partitions out, at
        the next poll(); without one, all partitions are this consumer's. ``listener`` is a
        :class:`~kohort.ConsumerRebalanceListener`. IllegalStateError after assign().
        """
        self._subscribe(topics, pattern, listener)

    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None before a subscription."""
        self._check_process()
        return set(self._engine.subscription.topics()) if self._engine.is_subscribed else None

    def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, want nothing."""
        if self._thread is None:
            self._check_usable()
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

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them in a group; none: unsubscribe().

        With a group_id, offsets are committed to it all the same.
        """
        chosen = _arguments.topic_partitions(partitions)
        if not chosen:
            self.unsubscribe()
            return
        if self._thread is not None and not self._engine.is_subscribed:
            self._engine.note_consumed()
            run_inline(self._callback_runner.auto_commit())
        self._assign(chosen)

    # -- positions ----------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """The offset of the next record to be returned; None if not known in time.

        ``timeout_ms=None`` is ``request_timeout_ms``. NotAssignedError.
        """
        tp = _arguments.topic_partition(partition)
        timeout = self._timeout(timeout_ms)
        self._check_usable()
        position = self._engine.subscription.position(tp)
        if position is not None:
            return position
        try:
            return self._call_engine(lambda: self._engine.position(tp, timeout), timeout)
        except (NoBrokersAvailable, CredentialsUnavailableError):
            raise
        except KafkaTimeoutError:
            return None

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first offset, looked up by the next poll(). None named: all assigned."""
        self._reset(partitions, OffsetReset.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue behind the last record, looked up by the next poll(). None named: all."""
        self._reset(partitions, OffsetReset.LATEST)

    def _reset(self, partitions: tuple[TopicPartition, ...], strategy: OffsetReset) -> None:
        self._check_usable()
        for tp in self._assigned_or(partitions):
            self._engine.subscription.request_reset(tp, strategy)
        self._call_soon(self._engine.fetcher.wake)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions, assigned or not. OffsetsTimeoutError."""
        return self._ends(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets behind the last records (read_committed: the last stable offsets)."""
        return self._ends(partitions, LATEST, timeout_ms)

    def _ends(
        self, partitions: Iterable[TopicPartition], end: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        chosen = _arguments.topic_partitions(partitions)
        timeout = self._timeout(timeout_ms)
        engine = self._engine
        return self._call_engine(lambda: engine.boundary_offsets(chosen, end, timeout), timeout)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offsets at or after timestamps (ms since the epoch); None where none is."""
        wanted = _arguments.timestamps(timestamps)
        timeout = self._timeout(timeout_ms)
        return self._call_engine(lambda: self._engine.offsets_at(wanted, timeout), timeout)
