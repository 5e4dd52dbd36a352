"""The base class of rebalance listeners, and the types of those without it.

A class needs no base class to be a listener. A consumer also calls ``on_partitions_lost`` where a
listener has it, and ``on_partitions_revoked`` in its place where it does not.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from kohort.types import TopicPartition


class ConsumerRebalanceListener:
    """Told when partitions come and go; override what you need.

    Methods run where you call ``poll()``, ``close()`` or ``unsubscribe()``, while heartbeats go on;
    ``commit``, ``position``, ``seek`` and ``pause`` work in them, ``poll`` does not. With
    AsyncKafkaConsumer they may be coroutines, and run in a task of the consumer while you hold no
    records and do not poll (option ``rebalance_without_poll``). What one raises comes out of
    ``poll()`` as RebalanceListenerError; the rebalance goes on.
    """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Any:
        """Before these are taken away: still owned, so commit here. Never called with nothing."""
        return None

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Any:
        """After a rebalance, before the first fetch of these, the new ones; may be none."""
        return None

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Any:
        """These are somebody else's already, commits fail. By default on_partitions_revoked()."""
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
