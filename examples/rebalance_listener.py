"""Two members share a topic. A listener prints what each of them gets and gives up.

In ``on_partitions_revoked`` the member still owns the partitions. It can commit there what it has
processed, so that the next owner continues after that.
"""

from __future__ import annotations

from collections.abc import Collection

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.testing import Cluster


class Narrator(ConsumerRebalanceListener):
    def __init__(self, name: str, consumer: KafkaConsumer) -> None:
        self.name = name
        self.consumer = consumer

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        print(f"{self.name} gets", sorted(tp.partition for tp in assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.consumer.commit()
        print(f"{self.name} gives up", sorted(tp.partition for tp in revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        print(f"{self.name} lost", sorted(tp.partition for tp in lost), "to others already")


def member(name: str, bootstrap_servers: str) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id="billing",
        enable_auto_commit=False,
    )
    consumer.subscribe(["orders"], listener=Narrator(name, consumer))
    return consumer


if __name__ == "__main__":
    with Cluster(topics={"orders": 6}, consumer_heartbeat_interval_ms=100) as cluster:
        with member("first", cluster.bootstrap_servers) as first:
            while not first.assignment():
                first.poll(timeout_ms=100)
            with member("second", cluster.bootstrap_servers) as second:
                while len(first.assignment()) != 3 or len(second.assignment()) != 3:
                    first.poll(timeout_ms=50)
                    second.poll(timeout_ms=50)
            while len(first.assignment()) != 6:
                first.poll(timeout_ms=100)
