"""KafkaConsumer: the synchronous face. The core runs in a daemon thread, the heartbeat thread."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from kohort.config import ConsumerConfig
from kohort.consumer import _arguments
from kohort.consumer._base import CLOSE_TIMEOUT, ConsumerBase, Pattern
from kohort.consumer._engine import EARLIEST, LATEST, Engine
from kohort.consumer._performer import Performer, run_inline
from kohort.consumer._signal import ThreadSignal
from kohort.consumer._thread import CoreThread
from kohort.consumer._work import CommitCallbackWork
from kohort.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceListenerError,
    ReentrantCallError,
)
from kohort.listeners import CallbackName, call_listener
from kohort.records import ConsumerRecord
from kohort.subscription import OffsetReset
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

logger = logging.getLogger("kohort.consumer")

T = TypeVar("T")
Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


class KafkaConsumer(ConsumerBase):
    """Reads topics, alone or as a member of a consumer group.

    ``KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")``; all options
    are in ``docs/configuration.md``. The constructor does no I/O: UnknownOptionError,
    InvalidOptionError and UnsupportedOptionError are all it raises.

    One thread at a time may use a consumer. Listeners, deserializers and assignors are called on
    that thread, inside poll() (or iteration), close() and unsubscribe().
    """

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._set_up(ConsumerConfig.from_kwargs(**configs), topics)

    def _set_up(self, config: ConsumerConfig, topics: tuple[str, ...]) -> None:
        self._signal = ThreadSignal()
        self._thread: CoreThread | None = None
        self._inside: int | None = None
        self._close_later: tuple[bool, float | None] | None = None
        engine = Engine(config, notify=self._signal.notify, clock=time.monotonic)
        self._prepare(config, engine, topics)

        async def call(function: Callable[[], Awaitable[T]]) -> T:
            return self._call(function)

        async def serve(
            function: Callable[[], Awaitable[None]],
            perform: Callable[[], Coroutine[Any, Any, None]],
        ) -> None:
            future = self._core().call(function)
            future.add_done_callback(lambda _: self._signal.notify())
            while True:
                self._signal.clear()
                run_inline(perform())
                if future.done():
                    return future.result()
                self._signal.wait(1.0)

        async def invoke(
            listener: Any, callback: CallbackName, partitions: frozenset[TopicPartition]
        ) -> RebalanceListenerError | None:
            return call_listener(listener, callback, partitions)

        self._performer = Performer(engine, call, serve, invoke)

    # -- the core -----------------------------------------------------------------------------

    def _core(self) -> CoreThread:
        self._check_usable()
        if self._thread is None:
            thread = CoreThread(self._engine, f"kohort-heartbeat-{self._config.client.client_id}")
            self._engine.mailbox.core = thread
            self._thread, self._pid = thread, os.getpid()
            thread.start()
        return self._thread

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        return self._core().call(function).result()

    @contextmanager
    def _polling(self, what: str) -> Iterator[None]:
        """Be inside poll(): heartbeats count it as life, listeners may be called."""
        self._core()
        me = threading.get_ident()
        if self._inside is not None:
            if self._inside == me:
                raise ReentrantCallError(
                    f"{what} was called from inside a listener, deserializer or assignor"
                )
            raise IllegalStateError(f"{what} was called while another thread is inside poll()")
        self._inside = me
        self._engine.mailbox.entered_poll()
        try:
            self._engine.note_consumed()
            yield
        finally:
            self._engine.mailbox.left_poll()
            self._inside = None
        if self._close_later is not None:
            self._finish_close(*self._close_later)

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
        with self._polling("poll()"):
            return self._poll(timeout, count)

    def _poll(self, timeout: float, count: int) -> Records:
        deadline = time.monotonic() + timeout
        buffer = self._engine.fetcher.buffer
        while True:
            self._signal.clear()
            run_inline(self._performer.perform_all())
            remaining = deadline - time.monotonic()
            over = remaining <= 0
            self._performer.raise_errors(over=over)
            if self._handout and (records := self._handout.take(count)):
                return records
            records = buffer.drain(count, repeat_errors=over)
            if records or over or self._close_later is not None:
                return records
            self._signal.wait(remaining)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[Any, Any]:
        """The next record; ends after ``consumer_timeout_ms`` without one, or when closed."""
        if self._closed:
            raise StopIteration
        if self._handout and not self._engine.mailbox.work and self._inside is None:
            record = self._handout.next()
            if record is not None:
                return record
        with self._polling("iteration"):
            deadline = time.monotonic() + self._config.consumer_timeout_ms / 1000
            while not self._closed and self._close_later is None:
                remaining = deadline - time.monotonic()
                held = self._handout.next()
                if held is None:
                    step = max(0.0, min(remaining, 1.0))
                    self._handout.load(self._poll(step, self._config.fetch.max_poll_records))
                    held = self._handout.next()
                if held is not None:
                    return held
                if remaining <= 0:
                    break
                self._engine.mailbox.entered_poll()
        raise StopIteration

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
        return set(self._engine.subscription.topics()) or None

    def unsubscribe(self) -> None:
        """Commit (if automatic), call the listener, leave the group, want nothing."""
        if self._thread is None:
            self._check_usable()
            self._engine.subscription.unsubscribe()
            return
        with self._polling("unsubscribe()"):
            error = self._leave("the consumer unsubscribed", True, CLOSE_TIMEOUT)
            self._engine.subscription.unsubscribe()
            self._tell_core(self._engine.subscription_changed)
        if error is not None:
            raise error

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them in a group; none: unsubscribe().

        With a group_id, offsets are committed to it all the same.
        """
        chosen = _arguments.topic_partitions(partitions)
        if not chosen:
            self.unsubscribe()
            return
        if self._thread is not None and self._config.group.auto_commit:
            run_inline(self._performer.auto_commit())
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
            return self._call(lambda: self._engine.position(tp, timeout))
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
        for tp in self._all_or(partitions):
            self._engine.subscription.request_reset(tp, strategy)
        self._tell_core(self._engine.fetcher.wake)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets of partitions, assigned or not. KafkaTimeoutError."""
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
        return self._call(lambda: self._engine.end_of(chosen, end, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offsets at or after timestamps (ms since the epoch); None where none is."""
        wanted = _arguments.timestamps(timestamps)
        timeout = self._timeout(timeout_ms)
        return self._call(lambda: self._engine.offsets_at(wanted, timeout))

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions, or these offsets, and wait until that is done.

        ``{partition: OffsetAndMetadata | offset}``. CommitFailedError when the group moved on,
        KafkaTimeoutError, IllegalStateError without a group.
        """
        self._check_usable()
        chosen = self._to_commit(offsets)
        timeout = self._timeout(timeout_ms)
        self._call(lambda: self._engine.commit(chosen, timeout))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, Any] | None = None,
        callback: Callable[[Any, Any], Any] | None = None,
    ) -> Future[None]:
        """Commit without waiting.

        ``callback(offsets, error)`` is called from a later poll() or close(); error is None when
        it worked. Without one, ``default_offset_commit_callback`` is.
        """
        self._check_usable()
        chosen = self._to_commit(offsets)
        future = self._core().call(lambda: self._engine.commit(chosen, None))
        wanted = callback or self._config.default_offset_commit_callback
        if wanted is not None:
            mailbox = self._engine.mailbox

            def done(future: Future[None]) -> None:
                work = CommitCallbackWork(mailbox.core, wanted, chosen, future.exception())
                mailbox.post(work)

            future.add_done_callback(done)
        return future

    def committed(
        self,
        partition: TopicPartition,
        metadata: bool = False,
        timeout_ms: float | None = None,
    ) -> int | OffsetAndMetadata | None:
        """The offset that the group has committed, None if none; with ``metadata``, all of it."""
        self._require_group()
        tp = _arguments.topic_partition(partition)
        timeout = self._timeout(timeout_ms)
        found = self._call(lambda: self._engine.committed([tp], timeout)).get(tp)
        return found if metadata or found is None else found.offset

    # -- the cluster --------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int]:
        """The partitions of a topic; empty if there is no such topic. KafkaTimeoutError."""
        (name,) = _arguments.topic_names([topic])
        return set(self._call(lambda: self._engine.partitions_of(name, None)))

    def topics(self) -> set[str]:
        """The names of all topics. KafkaTimeoutError."""
        return set(self._call(lambda: self._engine.all_topics(None)))

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait until the cluster is known; ``refresh`` asks for it anew.

        ``timeout_ms=None`` is ``bootstrap_timeout_ms``. NoBrokersAvailable, KafkaTimeoutError.
        """
        default = self._config.client.bootstrap_timeout_ms
        timeout = _arguments.timeout_seconds(timeout_ms, default)
        self._call(lambda: self._engine.bootstrap(timeout))
        if refresh:
            self._call(lambda: self._engine.all_topics(timeout))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster has been reached since the start, and the consumer is open."""
        return not self._closed and self._engine.cluster.bootstrapped

    def _timeout(self, timeout_ms: float | None) -> float | None:
        return _arguments.timeout_seconds(timeout_ms, self._config.client.request_timeout_ms)

    # -- the end ------------------------------------------------------------------------------

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:
        """Commit (if automatic), call the listener, leave the group, end the thread.

        Takes 5 s at most, or ``timeout_ms``. May be called twice. From inside a listener it
        returns at once, and the consumer closes when the callback has returned.
        """
        timeout = _arguments.timeout_seconds(timeout_ms)
        if self._closed or self._pid not in (None, os.getpid()):
            self._closed = True
            return
        if self._inside == threading.get_ident():
            self._close_later = (autocommit, timeout)
            return
        self._finish_close(autocommit, timeout)

    def _finish_close(self, autocommit: bool, timeout: float | None) -> None:
        self._close_later = None
        thread, deadline = self._thread, time.monotonic() + (timeout or CLOSE_TIMEOUT)
        error: KafkaError | None = None
        try:
            if thread is not None and thread.alive:
                error = self._leave("the consumer was closed", autocommit, timeout)
        finally:
            self._closed = True
            if thread is not None:
                thread.stop(max(0.2, deadline - time.monotonic()))
            self._performer.abandon()
            self._close_deserializers()
        if error is not None:
            raise error

    def _leave(self, reason: str, autocommit: bool, timeout: float | None) -> KafkaError | None:
        """Give everything up in good order; returns what a listener raised."""
        limit = CLOSE_TIMEOUT if timeout is None else timeout
        deadline = time.monotonic() + limit
        self._inside = threading.get_ident()
        try:
            return run_inline(self._performer.leave(reason, autocommit, deadline))
        finally:
            self._inside = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self.close(autocommit=exc_type is None)

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is not None and not self._closed and self._pid == os.getpid():
            self._warn_unclosed()
            thread.request_stop()
