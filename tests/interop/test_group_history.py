"""The history of groups of kohort and confluent-kafka, on Apache Kafka and on the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from kohort import KafkaConsumer, TopicPartition
from kohort.history import read_history
from tests.interop.brokers import QUIET, Broker
from tests.interop.waiting import wait_until

PARTITIONS = 4


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.cases(2)
def test_history_has_the_owners_that_the_members_saw(quick_broker: Broker, protocol: str) -> None:
    check_history(quick_broker, protocol)


def check_history(broker: Broker, protocol: str) -> None:
    """Compare the history of a group of both clients with what its members owned."""
    stamp = time.time_ns()
    topic, group = broker.create_topic(f"past-{stamp}", PARTITIONS), f"past-{stamp}"
    servers = broker.bootstrap_servers
    other = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": "confluent",
            "group.protocol": protocol,
            **({"partition.assignment.strategy": "range"} if protocol == "classic" else {}),
            **QUIET,
        }
    )
    options: Any = {"group_protocol": protocol}
    if protocol == "classic":
        options["partition_assignment_strategy"] = ["range"]
    with KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        client_id="kohort",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    ) as consumer:
        polls: list[Callable[[], object]] = [lambda: consumer.poll(timeout_ms=50)]

        def owned(wanted: dict[str, int]) -> bool:
            for poll in polls:
                poll()
            found = {"kohort": len(consumer.assignment())}
            if len(polls) > 1:
                found["confluent"] = len(other.assignment())
            return found == wanted

        wait_until(lambda: owned({"kohort": PARTITIONS}))
        alone_ms = int(time.time() * 1000)
        other.subscribe([topic])
        polls.append(lambda: other.poll(0.05))
        wait_until(lambda: owned({"kohort": 2, "confluent": 2}))
        shared_ms, shared = int(time.time() * 1000), consumer.assignment()
        consumer.commit(dict.fromkeys(shared, 0))
        other.close()
        polls.pop()
        wait_until(lambda: owned({"kohort": PARTITIONS}))
        again_ms = int(time.time() * 1000)
    history = read_history(group, moments=1, bootstrap_servers=servers)
    assert history.protocol == protocol and history.unread == 0
    everything = {TopicPartition(topic, number) for number in range(PARTITIONS)}
    for at_ms, mine in ((alone_ms, everything), (shared_ms, shared), (again_ms, everything)):
        owners = {tp: member.client_id for tp, member in history.owners_at(at_ms).items()}
        assert owners == {tp: "kohort" if tp in mine else "confluent" for tp in everything}
    assert history.owners_at(history.until_ms) == {}
    causes = [each.text for each in history.events if each.kind == "rebalance"]
    assert next(each for each in causes if each != "group created") == "kohort joined"
    assert "confluent joined" in causes and "confluent left" in causes
    assert causes[-1] == "kohort left" or history.events[-1].kind == "deletion"
    assert {each.partition for each in history.lags} == shared
