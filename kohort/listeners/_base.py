"""The base class of rebalance listeners."""

from __future__ import annotations

from collections.abc import Awaitable

from kohort.types import TopicPartition


class ConsumerRebalanceListener:
    """Told when partitions come and go; override what you need.

    Methods run where you call ``poll()``, ``close()`` or ``unsubscribe()``, while heartbeats go on;
    ``commit``, ``position``, ``seek`` and ``pause`` work in them, ``poll`` does not. With
    AsyncKafkaConsumer they may be coroutines, and run in a task of the consumer while you hold no
    records and do not poll (option ``rebalance_without_poll``). What one raises comes out of
    ``poll()`` as RebalanceListenerError; the rebalance goes on.
    """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Before these are taken away: still owned, so commit here. Never called with nothing."""
        return None

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """After a rebalance, before the first fetch of these, the new ones; may be none."""
        return None

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are somebody else's already, commits fail. By default on_partitions_revoked()."""
        return self.on_partitions_revoked(lost)
