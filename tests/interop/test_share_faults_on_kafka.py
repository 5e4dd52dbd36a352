"""Workers of a share group on Apache Kafka under faults: members and brokers die, leaders move.

Each record has to be accepted at least once. The delivery counts are those that docs/queues.md
describes: a record that was in flight at a fault may come again, and others come once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort import KafkaAdminClient, TopicPartition
from kohort.protocol.messages import AlterPartitionReassignmentsRequest
from tests.broker.raw import Raw
from tests.interop.brokers import Broker
from tests.interop.waiting import wait_until
from tests.processing.killing import (
    DELIVERIES,
    LIMIT_S,
    SHARE_WORKER,
    Workers,
    check_kills,
    run_kills,
)
from tests.support.kafka_server import KafkaServer

pytestmark = [pytest.mark.real_kafka, pytest.mark.long, pytest.mark.timeout(3600)]

PARTITIONS = 4
EACH = 50
"""Records for each partition between two faults."""
KILLS, BROKER_KILLS, MOVES = 20, 5, 10
BROKERS = 3
MEMBERS = 3


class Queue:
    """A topic with workers, and with figures about its records."""

    def __init__(self, broker: Broker, name: str, folder: Path) -> None:
        self.broker = broker
        self.topic = broker.create_topic(name, PARTITIONS)
        self.workers = Workers(folder, broker.bootstrap_servers, name, program=SHARE_WORKER)
        self.feed = broker.feed(name, PARTITIONS)
        self.produced = 0

    def produce(self) -> int:
        """Write records, and return their number."""
        self.feed.write(EACH)
        self.produced += EACH * PARTITIONS
        return EACH * PARTITIONS

    def wait_for(self, handled: int) -> None:
        """Wait until this number of records was handled."""
        wait_until(
            lambda: len({place for _, place in self.workers.events("end")}) >= handled,
            deadline_s=LIMIT_S,
        )

    def run(self, times: int, fault: Callable[[int], None]) -> None:
        """Let members work while a fault comes some times, until everything is handled."""
        try:
            for _ in range(MEMBERS):
                self.workers.start()
            for turn in range(times):
                self.produce()
                self.wait_for(self.produced - EACH * PARTITIONS // 2)
                fault(turn)
            self.produce()
            self.wait_for(self.produced)
        finally:
            self.workers.stop()
        self.check(times)

    def check(self, faults: int) -> None:
        """Check that no record is left, and print how many came again."""
        begun = [place for _, place in self.workers.events("begin")]
        again = len(begun) - len(set(begun))
        counts = {n: len(self.workers.events(f"delivery-{n}")) for n in range(1, DELIVERIES + 1)}
        print(f"{faults} faults, {self.produced} records, {again} handled again: {counts}")
        assert len(set(begun)) == self.produced
        # A leader that forgets a lock counts from 1 again, so a count is never too high.
        assert sum(counts.values()) == len(begun)
        assert counts[1] >= self.produced - again
        with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            offsets = admin.list_share_group_offsets(self.topic)[self.topic]
        lags = {place: offset.lag for place, offset in offsets.items()}
        assert lags == {TopicPartition(self.topic, n): 0 for n in range(PARTITIONS)}


def test_killed_members_lose_no_record(
    apache: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    queue = Queue(apache, unique("jobs"), tmp_path)
    check_kills(run_kills(queue.workers, signal.SIGKILL, KILLS, queue.produce, dict))
    queue.check(KILLS)


def test_killed_broker_loses_no_record(
    kafka: KafkaServer, apache: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    def fault(turn: int) -> None:
        kafka.kill()
        kafka.start()

    Queue(apache, unique("jobs"), tmp_path).run(BROKER_KILLS, fault)


def test_moved_leader_loses_no_record(
    start_kafka: Callable[..., KafkaServer], unique: Callable[[str], str], tmp_path: Path
) -> None:
    first = start_kafka()
    ids = range(2, BROKERS + 1)
    others = [start_kafka({"node.id": str(node)}, first=first) for node in ids]
    broker = Broker(first.bootstrap_servers)
    queue = Queue(broker, unique("jobs"), tmp_path)
    cls = AlterPartitionReassignmentsRequest

    def fault(turn: int) -> None:
        node = 1 + (turn + 1) % BROKERS
        moved = [cls.ReassignablePartition(partition_index=n, replicas=[node]) for n in range(4)]
        topic = cls.ReassignableTopic(name=queue.topic, partitions=moved)
        with Raw(first.bootstrap_servers) as raw:
            assert raw.ask(cls(topics=[topic]), 0).error_code == 0
        wait_until(lambda: leaders(broker, queue.topic) == {node})

    try:
        queue.run(MOVES, fault)
    finally:
        for server in (*others, first):
            server.kill()


def leaders(broker: Broker, topic: str) -> set[int]:
    """Return the leaders of all partitions."""
    found = broker.admin.list_topics(topic, timeout=60).topics[topic]
    return {partition.leader for partition in found.partitions.values()}
