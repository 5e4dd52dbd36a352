"""A custom assignor: the round-robin of Kafka's first consumer, ordered by hash.

The assignor sorts all partitions by the hash of "topic-partition". It assigns them in turn to the
consumer threads of all members. The user data of a member's subscription is its number of threads.
The user data of its assignment lists the partitions of each thread.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from kohort import KafkaConsumer, TopicPartition
from kohort.assignors import Assignment, Assignments, ClusterTopics, PartitionAssignor, Subscription
from kohort.testing import Cluster
from kohort.types import ConsumerGroupMetadata


def string_hash(text: str) -> int:
    """Return Java's hash of a string, a signed number of 32 bits."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    return value - 2**32 if value >= 2**31 else value


class HashOrderedRoundRobin(PartitionAssignor):
    name = "hash-ordered-roundrobin"

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.work: list[list[TopicPartition]] = []
        """Partitions of each thread of this member."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes:
        return b"%d" % self.threads

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        """Assign all partitions. Only the group's leader calls this."""
        counts = {member: int(said.user_data or 1) for member, said in subscriptions.items()}
        work: dict[str, list[list[TopicPartition]]] = {
            member: [[] for _ in range(counts[member])] for member in sorted(counts)
        }
        threads = [(member, one) for member, lists in work.items() for one in lists]
        row = [TopicPartition(t, n) for t in cluster.topics() for n in range(cluster.partitions[t])]
        row.sort(key=lambda tp: (string_hash(f"{tp.topic}-{tp.partition}"), tp))
        turn = 0
        for tp in row:
            while tp.topic not in subscriptions[threads[turn % len(threads)][0]].topics:
                turn += 1
            threads[turn % len(threads)][1].append(tp)
            turn += 1
        return {
            member: Assignment(
                tuple(tp for partitions in lists for tp in partitions), json.dumps(lists).encode()
            )
            for member, lists in work.items()
        }

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """Store the partitions of each thread. Every member calls this before its listener."""
        lists = json.loads(assignment.user_data or b"[]")
        self.work = [[TopicPartition(*pair) for pair in pairs] for pairs in lists]


def member(bootstrap_servers: str, assignor: HashOrderedRoundRobin) -> KafkaConsumer:
    return KafkaConsumer(
        "clicks",
        "orders",
        bootstrap_servers=bootstrap_servers,
        group_id="reports",
        heartbeat_interval_ms=100,
        partition_assignment_strategy=[assignor],
    )


if __name__ == "__main__":
    with Cluster(topics={"clicks": 5, "orders": 4}) as cluster:
        large, small = HashOrderedRoundRobin(threads=2), HashOrderedRoundRobin()
        with (
            member(cluster.bootstrap_servers, large) as first,
            member(cluster.bootstrap_servers, small) as second,
        ):
            while (len(first.assignment()), len(second.assignment())) != (6, 3):
                first.poll(timeout_ms=50)
                second.poll(timeout_ms=50)
        for name, assignor in [("large", large), ("small", small)]:
            for thread, partitions in enumerate(assignor.work):
                print(name, thread, [f"{tp.topic}-{tp.partition}" for tp in partitions])
