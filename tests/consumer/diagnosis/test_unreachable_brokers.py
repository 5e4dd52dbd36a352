"""The text of explain() on brokers whose advertised address does not work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.kit import poll_until
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

CAUSE = "cannot resolve kafka.invalid"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster(topics={"orders": 1}, advertised_host="kafka.invalid") as cluster:
        yield cluster.bootstrap_servers.replace("kafka.invalid", "127.0.0.1")


def test_explain_names_a_broker_that_cannot_be_connected_to(servers: str) -> None:
    with KafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        poll_until(consumer, lambda: CAUSE in str(consumer.explain()))
        found = consumer.explain()
        assert found.reasons[0].startswith("broker 1: cannot connect to kafka.invalid:")
        assert CAUSE in found.reasons[0]
        assert "advertised.listeners" in found.reasons[0]
        assert list(found.as_dict()["cluster"]["unreachable"]) == [1]


def test_explain_names_the_cause_once_in_a_group(servers: str) -> None:
    with KafkaConsumer("orders", bootstrap_servers=servers, group_id="g") as consumer:
        poll_until(consumer, lambda: CAUSE in str(consumer.explain()))
        assert "\n".join(consumer.explain().reasons).count(CAUSE) == 1


def test_explain_names_no_broker_after_one_lost_connection() -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            consumer.poll(timeout_ms=100)
            with cluster.disconnect("Fetch", times=1) as fault:
                while not fault.hits:
                    consumer.poll(timeout_ms=10)
            assert not consumer.explain().as_dict()["cluster"]["unreachable"]


def test_explain_names_unreachable_brokers_only_while_needed() -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            cluster.move_leader("t", 0, 1)
            first, second = cluster.bootstrap_servers.split(",")

            async def connect(host: str, port: int) -> object:
                if f"{host}:{port}" == second:
                    raise ConnectionRefusedError("nothing listens")
                return await cluster.connect(host, port)

            async with MemoryConsumer(
                cluster,
                bootstrap_servers=first,
                connect=connect,
                group_id=None,
                metadata_max_age_ms=1_000,
            ) as consumer:

                def named() -> bool:
                    explanation = consumer.explain()
                    unreachable = explanation.as_dict()["cluster"]["unreachable"]
                    assert bool(unreachable) == (second in str(explanation))
                    return bool(unreachable)

                consumer.assign([TopicPartition("t", 0)])
                await poll_for(consumer, lambda: consumer._driver.engine.cluster.unreachable)
                assert not named()
                cluster.move_leader("t", 0, 2)
                await poll_for(consumer, named)
                cluster.move_leader("t", 0, 1)
                cluster.produce("t", ["a"])
                assert await values(consumer, 1) == [b"a"]
                assert not named()

    run_virtual(main)
