"""The methods of AsyncKafkaConsumer that commit offsets, and that read offsets and metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from kohort.consumer.driver._commit_future import AsyncCommitFuture
from kohort.consumer.driver._task_driver import AsyncLifecycle
from kohort.errors import IllegalStateError
from kohort.types import LazyModule, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer.api import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer.api._typing")


class AsyncRequests(AsyncLifecycle):
    """The methods of AsyncKafkaConsumer for commits, offset lookups and cluster metadata."""

    # -- committing ---------------------------------------------------------------------------

    async def commit(
        self, offsets: _typing.CommitOffsets | None = None, timeout_ms: float | None = None
    ) -> None:
        """Commit the positions, or ``{partition: OffsetAndMetadata | offset}``, and wait for it.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises CommitFailedError if the
        consumer lost its membership or the group rebalanced, KafkaTimeoutError, and
        IllegalStateError without a ``group_id``.
        """
        try:
            await self._call(self._plan_commit(offsets, timeout_ms))
        finally:
            if not self._callbacks.is_running:
                self._callback_runner.run_commit_callbacks()

    def commit_async(
        self,
        offsets: _typing.CommitOffsets | None = None,
        callback: _typing.CommitCallback | None = None,
    ) -> AsyncCommitFuture:
        """Start a commit and return its future, without a wait. close() waits for it.

        A later poll(), commit() or close() calls ``callback(offsets, error)``, where ``error`` is
        None after a success. Its default is the option ``default_offset_commit_callback``.

        KafkaConsumer returns a concurrent.futures.Future, whose ``result()`` waits no longer than
        :meth:`commit` and raises its errors. AsyncKafkaConsumer returns a future to await, and
        raises IllegalStateError before it is started.
        """
        self._life.check_usable()
        chosen = self._offsets_to_commit(offsets)
        if self._background_task is None or not self._started.is_set():
            raise IllegalStateError(
                "commit_async() failed: the consumer is not started. Await start() or poll() first"
            )
        self._check_loop()
        self._engine.check_running()
        future = AsyncCommitFuture()
        self._follow_commit(future, chosen, callback)
        self._engine.offset_requests.start_commit(chosen, future.finish)
        return future

    @overload
    async def committed(
        self,
        partition: TopicPartition,
        metadata: Literal[False] = False,
        timeout_ms: float | None = None,
    ) -> int | None: ...

    @overload
    async def committed(
        self,
        partition: TopicPartition,
        metadata: Literal[True],
        timeout_ms: float | None = None,
    ) -> OffsetAndMetadata | None: ...

    @overload
    async def committed(
        self,
        partition: Iterable[TopicPartition],
        metadata: Literal[False] = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    async def committed(
        self,
        partition: Iterable[TopicPartition],
        metadata: Literal[True],
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    async def committed(
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
        return await self._call(self._plan_committed(partition, metadata, timeout_ms))

    # -- the cluster --------------------------------------------------------------------------

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> set[int]:
        """Return the partition numbers of a topic; empty if the topic does not exist.

        Raises KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return await self._call(self._plan_partitions(topic, timeout_ms))

    async def topics(self, timeout_ms: float | None = None) -> set[str]:
        """Return the names of all topics of the cluster.

        Raises KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return await self._call(self._plan_topics(timeout_ms))

    async def topic_ids(
        self, topics: _typing.Topics, timeout_ms: float | None = None
    ) -> dict[str, uuid.UUID]:
        """Return the ids of topics by a new request. A recreated topic has a new id (KIP-516).

        Topics that do not exist are left out. Brokers before Kafka 2.8 have no ids. Raises
        KafkaTimeoutError after ``timeout_ms``, by default ``request_timeout_ms``.
        """
        return await self._call(self._plan_topic_ids(topics, timeout_ms))

    async def bootstrap(self, timeout_ms: float | None = None, refresh: bool = False) -> None:
        """Wait for the cluster metadata, and with ``refresh=True`` for another update of it.

        The default of ``timeout_ms`` is ``bootstrap_timeout_ms``. Raises NoBrokersAvailable if no
        broker was reached, and KafkaTimeoutError.
        """
        await self._call(self._plan_bootstrap(timeout_ms, refresh))

    # -- positions ----------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record, looked up if necessary.

        Raises NotAssignedError if the partition is not assigned, NoOffsetForPartitionError,
        NoBrokersAvailable, and KafkaTimeoutError after ``timeout_ms``, by default
        ``request_timeout_ms``.
        """
        return await self._call(self._plan_position(partition, timeout_ms))

    async def seek_to_committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Set positions to the committed offsets, and return these offsets.

        Without arguments it applies to all assigned partitions. Partitions without a committed
        offset keep their position, and their value is None. The default of ``timeout_ms`` is
        ``request_timeout_ms``. Raises NotAssignedError, KafkaTimeoutError, and IllegalStateError
        without a ``group_id``.
        """
        offsets = await self._call(self._plan_assigned_committed(partitions, timeout_ms))
        self._seek_to(offsets)
        return offsets

    # -- offsets of the log -------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not.

        The default of ``timeout_ms`` is ``request_timeout_ms``. Raises OffsetsTimeoutError if
        offsets are missing then.
        """
        return await self._call(self._plan_beginning_offsets(partitions, timeout_ms))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, assigned or not.

        With read_committed it is the last stable offset. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
        return await self._call(self._plan_end_offsets(partitions, timeout_ms))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a timestamp for each partition; None if none.

        Timestamps are in milliseconds since the epoch. ``timeout_ms`` and errors are those of
        :meth:`beginning_offsets`.
        """
        return await self._call(self._plan_offsets_for_times(timestamps, timeout_ms))
