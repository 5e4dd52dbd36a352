"""The methods of AsyncKafkaConsumer that commit offsets, and that read offsets and metadata."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, overload

import anyio

from kohort.consumer import _arguments
from kohort.consumer._async_lifecycle import AsyncLifecycle
from kohort.consumer._engine import EARLIEST, LATEST
from kohort.types import LazyModule, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kohort.consumer import _typing
else:
    uuid, _typing = LazyModule("uuid"), LazyModule("kohort.consumer._typing")


class AsyncRequests(AsyncLifecycle):
    """The methods of AsyncKafkaConsumer for commits, offset lookups and cluster metadata."""

    # -- committing ---------------------------------------------------------------------------

    async def commit(self, offsets: _typing.CommitOffsets | None = None) -> None:
        """Commit the positions, or ``{partition: OffsetAndMetadata | offset}``, and wait for it.

        Raises CommitFailedError if the consumer lost its membership or the group rebalanced, and
        KafkaTimeoutError after ``request_timeout_ms``. Raises NotAssignedError for partitions that
        are not assigned, and IllegalStateError without a ``group_id``.
        """
        self._check_running()
        chosen = self._offsets_to_commit(offsets)
        self._check_assigned(chosen)
        await self._engine.commit(chosen, None)

    @overload
    async def committed(self, partition: TopicPartition) -> int | None: ...

    @overload
    async def committed(
        self, partition: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | None]: ...

    async def committed(
        self, partition: TopicPartition | Iterable[TopicPartition]
    ) -> int | dict[TopicPartition, int | None] | None:
        """Return the committed offset of a partition, or None if there is none.

        For a collection of partitions return a dict. Raises KafkaTimeoutError after
        ``request_timeout_ms``, and IllegalStateError without a ``group_id``.
        """
        self._require_group()
        self._check_running()
        one, chosen = _arguments.one_or_more(partition)
        found = await self._engine.committed(chosen, None)
        offsets = {tp: None if at is None else at.offset for tp, at in found.items()}
        return offsets[chosen[0]] if one else offsets

    # -- the cluster --------------------------------------------------------------------------

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the known partition numbers of a topic, or None if it is unknown. No I/O."""
        self._check_process()
        return set(self._engine.cluster.metadata.partitions_for(topic)) or None

    async def topic_ids(self, topics: _typing.Topics) -> dict[str, uuid.UUID]:
        """Return the ids of topics by a new request. A recreated topic has a new id (KIP-516).

        Topics that do not exist are left out. Brokers before Kafka 2.8 have no ids. Raises
        KafkaTimeoutError after ``request_timeout_ms``.
        """
        self._check_running()
        return await self._engine.topic_ids(_arguments.topic_names(topics), None)

    async def topics(self) -> set[str]:
        """Return the names of all topics of the cluster.

        Raises KafkaTimeoutError after ``request_timeout_ms``.
        """
        self._check_running()
        return set(await self._engine.all_topics(None))

    # -- offsets of the log -------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, assigned or not.

        Raises OffsetsTimeoutError if offsets are missing after ``request_timeout_ms``.
        """
        self._check_running()
        return await self._engine.boundary_offsets(
            _arguments.topic_partitions(partitions), EARLIEST, None
        )

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition, assigned or not.

        With read_committed it is the last stable offset. Raises OffsetsTimeoutError if offsets are
        missing after ``request_timeout_ms``.
        """
        self._check_running()
        return await self._engine.boundary_offsets(
            _arguments.topic_partitions(partitions), LATEST, None
        )

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a timestamp for each partition; None if none.

        Timestamps are in milliseconds since the epoch. Raises OffsetsTimeoutError if offsets are
        missing after ``request_timeout_ms``.
        """
        self._check_running()
        return await self._engine.offsets_at(_arguments.timestamps(timestamps), None)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset of the latest fetch, or None before the first. No I/O.

        It is -1 with ``isolation_level="read_uncommitted"``. Raises NotAssignedError.
        """
        self._check_process()
        tp = _arguments.topic_partition(partition)
        offset = self._engine.subscription.last_stable_offset(tp)
        committed = self._config.fetch.isolation_level == "read_committed"
        return offset if committed or offset is None else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the latest fetch response, or None before the first. No I/O.

        The time is in milliseconds since the epoch. Raises NotAssignedError.
        """
        self._check_process()
        tp = _arguments.topic_partition(partition)
        self._check_assigned([tp])
        fetched = self._engine.fetcher.fetched_at(tp)
        if fetched is None:
            return None
        now = (self._config.wall_clock or time.time)()
        return int((now - (anyio.current_time() - fetched)) * 1000)
