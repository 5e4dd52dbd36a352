"""A subclass overrides the methods that it needs."""

from __future__ import annotations

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        print(len(assigned))


KafkaConsumer(group_id="billing").subscribe(["orders"], listener=Listener())
