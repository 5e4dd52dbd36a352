"""Transactional producer of librdkafka, which continues when its coordinators are killed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kohort.testing import Cluster
from tests.interop.brokers import QUIET

pytestmark = pytest.mark.long  # several nodes of Kafka

PATIENCE_S = 90.0
GROUP = "g"


class Pipeline:
    """Producer whose transactions also commit offsets of a consumer's group."""

    def __init__(self, cluster: Cluster) -> None:
        address = {"bootstrap.servers": cluster.bootstrap_servers, **QUIET}
        self.producer = Producer({**address, "transactional.id": "x"})
        self.producer.init_transactions(PATIENCE_S)
        self.consumer = Consumer({**address, "group.id": GROUP})
        self.consumer.subscribe(["t"])
        deadline = time.monotonic() + PATIENCE_S
        while not self.consumer.assignment():
            assert time.monotonic() < deadline
            self.consumer.poll(0.1)
        self._offset = 0

    def run_transaction(self) -> None:
        """Commit one transaction, and retry every error that may be retried."""
        deadline = time.monotonic() + PATIENCE_S
        self._offset += 1
        self.producer.begin_transaction()
        self.producer.produce("t", b"value", partition=0)
        place = [TopicPartition("t", 0, self._offset)]
        metadata = self.consumer.consumer_group_metadata()
        while True:
            try:
                self.producer.send_offsets_to_transaction(place, metadata, 5)
                self.producer.commit_transaction(5)
                return
            except KafkaException as error:
                assert error.args[0].retriable(), error
                assert time.monotonic() < deadline, "the transaction hangs"

    def close(self) -> None:
        self.consumer.close()


@pytest.mark.parametrize("away", ["for good", "for a moment"])
def test_transactions_go_on_when_the_coordinator_is_killed(away: str) -> None:
    with Cluster(brokers=3, topics={"t": 1}) as cluster:
        pipeline = Pipeline(cluster)
        for _ in range(3):
            pipeline.run_transaction()
        killed = cluster.coordinator(GROUP)
        cluster.kill_broker(killed)
        if away == "for a moment":
            cluster.start_broker(killed)
        for _ in range(3):
            pipeline.run_transaction()
        assert cluster.committed(GROUP) != {}
        pipeline.close()
