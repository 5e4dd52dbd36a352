"""Offsets and cluster metadata of aiokafka's consumer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from kohort import TopicPartition as NativePartition
from kohort.compat.aiokafka import errors
from kohort.compat.aiokafka._base import AioSubscribing
from kohort.compat.aiokafka._kohort import WAIT_MS
from kohort.compat.aiokafka._private import INTERNAL_TOPICS
from kohort.compat.aiokafka._values import offsets_to_commit, to_native
from kohort.compat.aiokafka.structs import OffsetAndTimestamp, TopicPartition
from kohort.errors import KafkaTimeoutError, NotAssignedError

logger = logging.getLogger("kohort.compat.aiokafka")


class AioOffsets(AioSubscribing):
    """The methods of aiokafka's consumer for commits, positions and metadata."""

    async def commit(self, offsets: Any = None) -> None:
        """Commit the positions, or these offsets, and wait for it without a time limit."""
        self._require_group()
        view = self._subscription
        if view.subscription is None:
            raise errors.IllegalStateError("Not subscribed to any topics")
        if view.assignment is None:
            raise errors.IllegalStateError("No partitions assigned")
        chosen = None if offsets is None else offsets_to_commit(offsets)
        for tp in chosen or ():
            if tp not in view.assignment:
                raise errors.IllegalStateError(f"Partition {tp} is not assigned")
        self._require_started()
        await self._kohort.calls.settled()
        with self._kohort.errors.translating():
            while True:
                try:
                    return await self._kohort.native.commit(chosen)
                except KafkaTimeoutError:
                    if self._closed:
                        raise

    def _require_group(self) -> None:
        if self._group_id is None:
            raise errors.IllegalOperation("Requires group_id")

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the committed offset of a partition, or None."""
        self._require_group()
        self._require_started()
        with self._kohort.errors.translating():
            return await self._kohort.native.committed(NativePartition(*partition))

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record, and wait until it is known."""
        tp, view = NativePartition(*partition), self._subscription
        if tp not in self._assigned_partitions():
            raise errors.IllegalStateError(f"Partition {partition} is not assigned")
        self._require_started()
        while True:
            with self._kohort.errors.translating():
                try:
                    await self._kohort.calls.settled()
                    return await self._kohort.native.position(tp)
                except (NotAssignedError, KafkaTimeoutError):
                    pass  # a rebalance, which may bring the partition back
            if view.subscription is None or (view.assignment and tp not in view.assignment):
                raise errors.IllegalStateError(f"Partition {partition} is not assigned")
            await asyncio.sleep(WAIT_MS / 1000)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record, or None before the first fetch."""
        return self._fetched(self._kohort.native.highwater, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset, or None before the first fetch."""
        return self._fetched(self._kohort.native.last_stable_offset, partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last fetch in milliseconds, or None before the first."""
        return self._fetched(self._kohort.native.last_poll_timestamp, partition)

    def _fetched(
        self, read: Callable[[NativePartition], int | None], partition: TopicPartition
    ) -> int | None:
        assert partition in self._assigned_partitions(), "Partition is not assigned"
        try:
            return read(NativePartition(*partition))
        except NotAssignedError:
            return None  # a rebalance has begun

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this offset of the partition next."""
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._require_started()
        assert self._assigned_now() is not None, "No partitions are currently assigned"
        tp, native = NativePartition(*partition), self._kohort.native
        if tp not in self._assigned_partitions():
            raise errors.IllegalStateError(f"No current assignment for partition {partition}")

        def move() -> None:
            try:
                native.seek(tp, offset)
            except NotAssignedError:
                logger.info("seek() has no effect on %s-%d: a rebalance has begun", *tp)

        self._call_in_order(move)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Set positions to the first offsets, and wait until they are known."""
        return await self._seek_and_wait(self._kohort.native.seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Set positions to the log end offsets, and wait until they are known."""
        return await self._seek_and_wait(self._kohort.native.seek_to_end, partitions)

    async def _seek_and_wait(
        self, method: Callable[..., None], partitions: tuple[Any, ...]
    ) -> bool:
        chosen = to_native(self._chosen_or_assigned(partitions))
        self._require_started()
        await self._kohort.calls.settled()
        with self._kohort.errors.translating():
            method(*chosen)
        return await self._wait_for_positions(chosen, self._kohort.request_seconds)

    async def _wait_for_positions(
        self, partitions: Iterable[tuple[str, int]], seconds: float
    ) -> bool:
        """Wait for positions, so that no record produced later is missed."""
        chosen = to_native(partitions)
        found: list[Any] = []
        try:
            async with asyncio.timeout(seconds):
                looked_up = [self._kohort.native.position(tp) for tp in chosen]
                found = await asyncio.gather(*looked_up, return_exceptions=True)
        except TimeoutError:
            return False
        return not any(isinstance(each, BaseException) for each in found)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Set positions to the committed offsets, and return these offsets."""
        chosen = self._chosen_or_assigned(partitions)
        self._require_group()
        self._require_started()
        found: dict[TopicPartition, int | None] = {}
        with self._kohort.errors.translating():
            for tp in chosen:
                offset = found[tp] = await self._kohort.native.committed(NativePartition(*tp))
                if offset is not None:
                    self._kohort.native.seek(NativePartition(*tp), offset)
        return found

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after a timestamp for each partition, or None."""
        for tp, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"The target time for partition {tp} is {timestamp}. "
                    "The target time cannot be negative."
                )
        self._require_started()
        wanted = {NativePartition(*tp): int(each) for tp, each in timestamps.items()}
        with self._kohort.errors.translating():
            found = await self._kohort.native.offsets_for_times(wanted)
        return {
            TopicPartition(*tp): None if at is None else OffsetAndTimestamp(at.offset, at.timestamp)
            for tp, at in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.beginning_offsets(to_native(partitions))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.end_offsets(to_native(partitions))
        return {TopicPartition(*tp): offset for tp, offset in found.items()}

    # -- the cluster --------------------------------------------------------------------------

    async def topics(self) -> set[str]:
        """Return all topics except internal ones."""
        self._require_started()
        with self._kohort.errors.translating():
            found = await self._kohort.native.topics()
        self._client.cluster.names = frozenset(found)
        return set(found) - INTERNAL_TOPICS

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the known partitions of a topic, or None."""
        return self._kohort.native.known_partitions(topic)
