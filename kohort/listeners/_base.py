"""The base class of rebalance listeners, and the types of those without it.

A class needs no base class to be a listener. A consumer also calls ``on_partitions_lost`` where a
listener has it, and ``on_partitions_revoked`` in its place where it does not.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from kohort.types import TopicPartition


class ConsumerRebalanceListener:
    """A base class of listeners that are called in a rebalance; override the methods you need.

    Methods run inside your call of ``poll()``, ``close()`` or ``unsubscribe()``, while heartbeats
    continue. They may call ``commit``, ``position``, ``seek`` and ``pause``, but not ``poll``.

    With AsyncKafkaConsumer the methods may be coroutines. They also run in a task of the consumer
    while you do not poll and hold no returned records (option ``rebalance_without_poll``).

    ``poll()`` raises the error of a method as RebalanceListenerError. The rebalance continues.
    """

    __module__ = "kohort"

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Any:
        """Run before partitions are revoked, while you still own them, so you can commit here.

        It is never called with an empty set.
        """
        return None

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Any:
        """Run after a rebalance, before the first fetch of the newly assigned partitions.

        The set has only new partitions, and may be empty.
        """
        return None

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Any:
        """Run after partitions were lost: other members may own them, so commits fail.

        The default calls :meth:`on_partitions_revoked`.
        """
        return self.on_partitions_revoked(lost)


class RebalanceListener(Protocol):
    """Listener of a KafkaConsumer: its methods return None."""

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition], /) -> None:
        """Handle partitions that the consumer still owns and is about to lose."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition], /) -> None:
        """Handle newly assigned partitions before their first fetch."""


class AsyncRebalanceListener(Protocol):
    """Listener of an AsyncKafkaConsumer: its methods may be coroutine functions."""

    def on_partitions_revoked(
        self, revoked: frozenset[TopicPartition], /
    ) -> Awaitable[None] | None:
        """Handle partitions that the consumer still owns and is about to lose."""

    def on_partitions_assigned(
        self, assigned: frozenset[TopicPartition], /
    ) -> Awaitable[None] | None:
        """Handle newly assigned partitions before their first fetch."""
