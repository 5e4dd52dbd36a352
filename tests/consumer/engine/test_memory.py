"""The limit ``buffer_memory`` in a whole consumer whose caller does not poll."""

from __future__ import annotations

from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import read

MEMORY, ANSWER, PART = 4 << 20, 2 << 20, 256 << 10
PARTITIONS = 48


def test_many_partitions_and_a_caller_that_does_not_poll(
    cluster: Cluster, make: MakeConsumer
) -> None:
    """The topic has 18 MB to read ahead. The consumer reads ahead only what the memory allows."""
    cluster.create_topic("large", PARTITIONS)
    for partition in range(PARTITIONS):
        for _ in range(3):
            cluster.produce("large", [bytes(64 << 10)] * 2, partition=partition)
    consumer = make(
        "large",
        group_id=None,
        max_poll_records=1,
        buffer_memory=MEMORY,
        fetch_max_bytes=ANSWER,
        max_partition_fetch_bytes=PART,
    )
    read(consumer, 1)

    def figures() -> dict[str, float]:
        metrics = consumer.metrics()
        assert metrics is not None
        return metrics["consumer-fetch-manager-metrics"]

    cluster.wait_until(lambda: figures()["bytes-held"] > MEMORY - ANSWER)
    cluster.wait_until(lambda: not consumer._driver.engine.fetcher.in_flight())
    assert figures()["bytes-held"] <= MEMORY + PART
    assert figures()["bytes-buffered"] <= MEMORY + PART
    assert len(read(consumer, PARTITIONS * 6 - 1)) == PARTITIONS * 6 - 1
    assert figures()["bytes-held"] <= MEMORY + PART
