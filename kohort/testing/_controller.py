"""Who leads which partition, as brokers come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kohort.testing._topics import NO_LEADER, Partition


class Controller:
    """``partitions`` gives all of the cluster; ``is_live(node id)`` who may lead.

    Every replica has all records at any time, so whichever of them is there may lead. The last one
    that was in the ISR stays in it, as in Kafka, and is waited for.
    """

    def __init__(
        self, partitions: Callable[[], Iterable[Partition]], is_live: Callable[[int], bool]
    ) -> None:
        self._partitions = partitions
        self._is_live = is_live

    def broker_came(self, node_id: int) -> None:
        """It is in sync again, and leads what was without a leader."""
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            in_sync = {*partition.isr, node_id}
            partition.isr = [
                replica
                for replica in partition.replicas
                if replica in in_sync and self._is_live(replica)
            ]
            if partition.leader == NO_LEADER:
                partition.lead(node_id)

    def broker_went(self, node_id: int) -> None:
        """What it led gets a new leader with a higher epoch, or none."""
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            left = [replica for replica in partition.isr if replica != node_id]
            partition.isr = left or partition.isr
            if partition.leader == node_id:
                self.elect(partition)

    def elect(self, partition: Partition) -> None:
        """The first replica that is there and in sync."""
        able = (r for r in partition.replicas if r in partition.isr and self._is_live(r))
        partition.lead(next(able, NO_LEADER))
