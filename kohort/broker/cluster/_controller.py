"""Election of partition leaders when brokers register and unregister."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kohort.broker.cluster._topics import NO_LEADER, Lag, Partition


class Controller:
    """Leaders, replicas and in-sync replicas of all partitions.

    ``partitions`` returns all partitions of the cluster. ``is_live(node id)`` is True for a broker
    that may lead.

    Every replica has all records, except those that a test makes lag. So any live replica may lead.
    As in Kafka, the last replica of the ISR stays in it, and the partition waits for its broker.
    """

    def __init__(
        self, partitions: Callable[[], Iterable[Partition]], is_live: Callable[[int], bool]
    ) -> None:
        self._partitions = partitions
        self._is_live = is_live

    def on_broker_registered(self, node_id: int) -> None:
        """Add the broker to the ISRs, and let it lead its partitions without a leader."""
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            if not partition.lacks_records(node_id):
                in_sync = {*partition.isr, node_id}
                partition.isr = [
                    replica
                    for replica in partition.replicas
                    if replica in in_sync and self._is_live(replica)
                ]
            if partition.leader == NO_LEADER and (eligible := self._eligible_leaders(partition)):
                self.set_leader(partition, eligible[0])
            partition.log.notify()

    def on_broker_unregistered(self, node_id: int) -> None:
        """Elect new leaders for the broker's partitions, with a higher epoch or none."""
        for partition in self._partitions():
            if node_id not in partition.replicas:
                continue
            left = [replica for replica in partition.isr if replica != node_id]
            partition.isr = left or partition.isr
            if partition.leader == node_id:
                self.elect(partition)
            partition.log.notify()

    def elect(self, partition: Partition) -> None:
        """Make the first live replica of the ISR the leader, or none."""
        eligible = self._eligible_leaders(partition)
        self.set_leader(partition, eligible[0] if eligible else NO_LEADER)

    def set_leader(self, partition: Partition, node_id: int) -> None:
        """Make a broker the leader. One outside the ISR truncates the log and gets a new ISR."""
        if node_id != NO_LEADER and node_id not in partition.isr:
            partition.isr = [
                replica
                for replica in partition.replicas
                if replica == node_id
                or (self._is_live(replica) and not partition.lacks_records(replica))
            ]
        partition.set_leader(node_id)

    def reassign(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Set other replicas, which have all records immediately; keep the leader if it is among
        them.
        """
        partition.replicas = list(replicas)
        partition.lags = {
            node_id: lag for node_id, lag in partition.lags.items() if node_id in replicas
        }
        live = [
            replica
            for replica in replicas
            if self._is_live(replica) and not partition.lacks_records(replica)
        ]
        partition.isr = live or partition.replicas[:1]
        if partition.leader not in replicas:
            self.elect(partition)
        partition.log.notify()

    def set_lag(self, partition: Partition, node_id: int, lag: Lag | None) -> None:
        """Let a follower lag, None to catch up. It leaves the ISR while it lacks records."""
        if lag is not None:
            partition.lags[node_id] = lag
        else:
            partition.lags.pop(node_id, None)
        if partition.lacks_records(node_id):
            partition.isr = [replica for replica in partition.isr if replica != node_id]
        elif self._is_live(node_id) and partition.leader != NO_LEADER:
            partition.isr = [r for r in partition.replicas if r in {*partition.isr, node_id}]
        partition.log.notify()

    def _eligible_leaders(self, partition: Partition) -> list[int]:
        """Return the live replicas in sync, or any live ones if the topic allows unclean
        election.
        """
        live = [replica for replica in partition.replicas if self._is_live(replica)]
        in_sync = [replica for replica in live if replica in partition.isr]
        unclean = partition.topic.config("unclean.leader.election.enable").lower() == "true"
        return in_sync or (live if unclean else [])
