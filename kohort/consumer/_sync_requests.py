"""The methods of KafkaConsumer that commit offsets, and that read offsets and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, overload

from kohort.consumer import _arguments
from kohort.consumer._callback_queue import CommitCallback
from kohort.consumer._commit_future import CommitFuture
from kohort.consumer._engine import EARLIEST, LATEST
from kohort.consumer._sync_lifecycle import SyncLifecycle
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer._typing")


class SyncRequests(SyncLifecycle):
    """The methods of KafkaConsumer for commits, offset lookups and cluster metadata."""

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, offsets: _typing.CommitOffsets | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions, or ``{partition: OffsetAndMetadata | offset}``, and wait for it.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises CommitFailedError if the
        consumer lost its membership or the group rebalanced, KafkaTimeoutError, WakeupError, and
        IllegalStateError without a ``group_id``.
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
        """Start a commit and return its future, without a wait. close() waits for it.

        A later poll(), commit() or close() calls ``callback(offsets, error)``, where ``error`` is
        None after a success. Its default is the option ``default_offset_commit_callback``.
        ``result()`` of the future waits no longer than :meth:`commit` and raises its errors.
        """
        self._check_usable()
        chosen = self._offsets_to_commit(offsets)
        wanted = callback or self._config.default_offset_commit_callback
        callback_queue, thread = self._engine.callback_queue, self._running_thread()
        self._engine.check_running()
        ids = self._engine.ids_of(chosen)  # read now, because a later poll() may change them
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
        """Return the committed offset of a partition, or None if there is none.

        With ``metadata=True`` return an OffsetAndMetadata instead of an int. For a collection of
        partitions return a dict. The default of ``timeout_ms`` is ``request_timeout_ms``. Raises
        KafkaTimeoutError, and IllegalStateError without a ``group_id``.
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
        """Return the partition numbers of a topic; empty if the topic does not exist.

        Raises KafkaTimeoutError after ``request_timeout_ms``.
        """
        (name,) = _arguments.topic_names([topic])
        timeout = self._timeout(None)
        return set(self._call_engine(lambda: self._engine.partitions_of(name, timeout), timeout))

    def topics(self) -> set[str]:
        """Return the names of all topics of the cluster.

        Raises KafkaTimeoutError after ``request_timeout_ms``.
        """
        timeout = self._timeout(None)
        return set(self._call_engine(lambda: self._engine.all_topics(timeout), timeout))

    def topic_ids(
        self, topics: _typing.Topics, timeout_ms: float | None = None
    ) -> dict[str, uuid.UUID]:
        """Return the ids of topics by a new request. A recreated topic has a new id (KIP-516).

        Topics that do not exist are left out. Brokers before Kafka 2.8 have no ids. Raises
        KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        names = _arguments.topic_names(topics)
        timeout = self._timeout(timeout_ms)
        return self._call_engine(lambda: self._engine.topic_ids(names, timeout), timeout)

    def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait for the cluster metadata, and with ``refresh=True`` for another update of it.

        The default of ``timeout_ms`` is ``bootstrap_timeout_ms``. Raises NoBrokersAvailable if no
        broker was reached, and KafkaTimeoutError.
        """
        client, timeout = self._config.client, _arguments.timeout_seconds(timeout_ms)
        seconds = (client.bootstrap_timeout_ms + client.request_timeout_ms) / 1000
        self._call_engine(
            lambda: self._engine.bootstrap(timeout, refresh=refresh),
            seconds if timeout is None else timeout,
        )

    def bootstrap_connected(self) -> bool:
        """Return True if the consumer has reached the cluster and is not closed. No I/O."""
        self._check_process()
        return not self._closed and self._engine.cluster.bootstrapped

    # -- offsets of the log -------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises OffsetsTimeoutError if
        offsets are missing then.
        """
        return self._ends(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, assigned or not.

        With read_committed it is the last stable offset. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
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
        """Return the first offset at or after a timestamp for each partition; None if none.

        Timestamps are in milliseconds since the epoch. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
        wanted = _arguments.timestamps(timestamps)
        timeout = self._timeout(timeout_ms)
        return self._call_engine(lambda: self._engine.offsets_at(wanted, timeout), timeout)
