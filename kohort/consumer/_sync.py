"""KafkaConsumer: the synchronous face. The core runs in a daemon thread, the heartbeat thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_secrets
from kohort.consumer import _arguments
from kohort.consumer._base import Pattern
from kohort.consumer._callback_queue import CommitCallback
from kohort.consumer._callback_runner import run_inline
from kohort.consumer._commit_future import CommitFuture
from kohort.consumer._engine import EARLIEST, LATEST
from kohort.consumer._iteration_buffer import RUN_SECONDS
from kohort.consumer._sync_lifecycle import SyncLifecycle
from kohort.errors import (
    CredentialsUnavailableError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
)
from kohort.records import ConsumerRecord, SyncIteration
from kohort.subscription import NO_GROUP, OffsetReset
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    import pyarrow

    import kohort
    from kohort.consumer._tables import TablePoll
    from kohort.records import Allocate, TablePlan
else:
    kohort, uuid, pyarrow = LazyModule("kohort"), LazyModule("uuid"), LazyModule("pyarrow")

T = TypeVar("T")
Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]
Committed = int | OffsetAndMetadata | None


class KafkaConsumer(SyncIteration, SyncLifecycle):
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

    def __init__(self, *topics: str, **configs: Any) -> None:
        conceal_secrets(configs)
        self._set_up(ConsumerConfig.from_kwargs(**configs), topics)

    # -- records ------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Records that are there, waiting for some up to ``timeout_ms``; maybe none.

        At most ``max_records`` (default ``max_poll_records``) in all. Positions move past what is
        returned. A rebalance goes on in here: the listener is called on this thread.

        Raises DataError for a partition's bad data, RebalanceListenerError, NoBrokersAvailable and
        other KafkaErrors; nothing is lost by any of them, and polling may go on.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 0)
        assert timeout is not None
        count = _arguments.max_records(max_records, self._config.fetch.max_poll_records)
        records: Records = {}

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
    ) -> Records:
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

    def __iter__(self) -> Self:
        return self

    def _step(self) -> ConsumerRecord[Any, Any]:
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

    def _next_buffered(self) -> ConsumerRecord[Any, Any] | None:
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

    def _next(self) -> ConsumerRecord[Any, Any] | None:
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
        drained: Records = {}
        try:
            drained = self._poll(timeout, self._drain_size.count, buffered=False)
            self._drain_size.adapt(drained.values())
            self._iteration_buffer.load(drained)
        except BaseException:
            self._iteration_buffer.load(drained)  # what Ctrl-C kept from being held
            raise

    # -- subscription -------------------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str] = (), pattern: Pattern | None = None, listener: Any = None
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

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Have the group rebalance at the next poll(), unless it does already (KIP-568).

        The reason goes to the coordinator (KIP-800) and to the logs. IllegalStateError without a
        subscription in a group.
        """
        self._enforce_rebalance(reason)

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
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offsets at or after timestamps (ms since the epoch); None where none is."""
        wanted = _arguments.timestamps(timestamps)
        timeout = self._timeout(timeout_ms)
        return self._call_engine(lambda: self._engine.offsets_at(wanted, timeout), timeout)

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: float | None = None
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
        offsets: Mapping[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], Any] | None = None,
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
        self, partition: TopicPartition, metadata: bool = ..., timeout_ms: float | None = ...
    ) -> Committed: ...

    @overload
    def committed(
        self,
        partition: Iterable[TopicPartition],
        metadata: bool = ...,
        timeout_ms: float | None = ...,
    ) -> dict[TopicPartition, Committed]: ...

    def committed(
        self,
        partition: TopicPartition | Iterable[TopicPartition],
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> Committed | dict[TopicPartition, Committed]:
        """The offset that the group has committed, None if none; with ``metadata``, all of it.

        Of several partitions, asked for in one request, a dict.
        """
        self._require_group()
        one, chosen = _arguments.one_or_more(partition)
        timeout = self._timeout(timeout_ms)
        found = self._call_engine(lambda: self._engine.committed(chosen, timeout), timeout)
        offsets: dict[TopicPartition, Committed] = {
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
        self, topics: Iterable[str], timeout_ms: float | None = None
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
