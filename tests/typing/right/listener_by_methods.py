"""A listener needs no base class."""

from __future__ import annotations

from kohort import KafkaConsumer, RebalanceListener, TopicPartition


class Listener:
    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        print(sorted(revoked))

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(sorted(assigned))


listener: RebalanceListener = Listener()
KafkaConsumer(group_id="billing").subscribe(["orders"], listener=listener)
