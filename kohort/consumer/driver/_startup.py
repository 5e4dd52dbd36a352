"""The condition that start() waits for: topics that exist, an assignment and positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.transport import TopicMetadata
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._parts import ConsumerParts
    from kohort.coordinator_client import CoordinatorClient

CHECK_SECONDS = 0.05
"""Seconds between two checks. Most changes also notify the waiting task."""


class StartupWait:
    """The condition for start() to return, after which no later record is missed.

    start() waits for the first assignment without a limit. After it, start() waits for topics,
    first partitions and positions at most ``request_timeout_ms``.
    """

    def __init__(self, parts: ConsumerParts, has_first_assignment: Callable[[], bool]) -> None:
        self._parts = parts
        self._has_first_assignment = has_first_assignment
        timeout = parts.config.client.request_timeout_ms / 1000
        self._until = parts.callback_queue.clock() + timeout
        self._heartbeats = 0
        """Number of heartbeats before the latest check for first partitions."""

    @property
    def seconds(self) -> float | None:
        """Seconds until the next check; None to wait for the next event."""
        return min(self._left, CHECK_SECONDS) if self._has_assignment() else None

    @property
    def _left(self) -> float:
        return max(0.0, self._until - self._parts.callback_queue.clock())

    def is_done(self) -> bool:
        """Return True if nothing is left to wait for, or the time is up."""
        return self._has_assignment() and (self._is_complete() or not self._left)

    def _has_assignment(self) -> bool:
        parts = self._parts
        if parts.coordinator is None or not parts.subscription.is_subscribed:
            return True
        return self._has_first_assignment()

    def _is_complete(self) -> bool:
        parts = self._parts
        metadata = parts.cluster.metadata
        creates = parts.config.client.allow_auto_create_topics
        for topic in parts.subscription.topics():
            if _is_being_created(metadata.topics.get(topic), creates):
                return False
        group = parts.coordinator
        is_subscribed = parts.subscription.is_subscribed
        if is_subscribed and not self._has_first_assignment():
            return False
        if is_subscribed and group is not None:
            # A leader that sees new partitions assigns them in another rebalance.
            if group.needs_poll or not group.snapshot().is_stable:
                return False
            if self._awaits_partitions(group):
                return False
        standing = parts.fetcher.buffer.queues.permanent_errors()
        partitions = parts.subscription.snapshot().partitions
        return all(
            state.position is not None
            or state.is_leaving
            or tp in standing
            or ((error := state.status.last_error) is not None and not error.retriable)
            for tp, state in partitions.items()
        )

    def _awaits_partitions(self, group: CoordinatorClient) -> bool:
        """True if the consumer protocol may assign the first partitions soon.

        A member joins with nothing while the former owners release the partitions. The coordinator
        knows whether they do.
        """
        if self._parts.callback_queue.clock() >= group.awaits_partitions_until:
            return False
        metadata, subscription = self._parts.cluster.metadata, self._parts.subscription
        if subscription.broker_pattern:
            return True  # only the brokers know the topics
        partitions = [
            TopicPartition(name, number)
            for name in subscription.topics()
            if name in metadata.topics
            for number in metadata.topics[name].partitions
        ]
        if partitions:
            self._check_first_partitions(group, partitions)
        return bool(partitions)

    def _check_first_partitions(
        self, group: CoordinatorClient, partitions: list[TopicPartition]
    ) -> None:
        """Ask once after each heartbeat whether other members get all partitions."""
        heartbeats = group.statistics().heartbeats
        if heartbeats != self._heartbeats:
            self._heartbeats = heartbeats
            loop = self._parts.callback_queue.engine_loop
            loop.call_soon(partial(group.check_first_partitions, partitions))


def _is_being_created(topic: TopicMetadata | None, creates: bool) -> bool:
    if topic is None or topic.error == ErrorCode.LEADER_NOT_AVAILABLE:
        return True
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not topic.partitions:
        return creates  # the request creates it; where no broker does, poll() raises
    return any(partition.leader < 0 for partition in topic.partitions.values())
