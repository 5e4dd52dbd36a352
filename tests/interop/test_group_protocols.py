"""``group_protocol="auto"`` on brokers of several versions: it joins everywhere and says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import SubscriptionPattern
from kohort.errors import UnsupportedVersionError
from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.reading import Record, read
from tests.interop.waiting import wait_until
from tests.support.jars import jars, old_jars
from tests.support.kafka_server import KafkaServer
from tests.support.old_kafka import ZooKeeperKafka
from tests.support.plugin import SERVERS

Unique = Callable[[str], str]
SMALL = {"offsets.topic.num.partitions": "1"}
COUNT = 20


class WithoutConsumerProtocol(KafkaServer):
    """Apache Kafka in which the consumer protocol is switched off."""

    format_options = ("--feature", "group.version=0")


def auto(servers: str, *topics: str, **options: Any) -> kohort.KafkaConsumer:
    """Return a consumer with the options that leave the choice to the cluster."""
    return kohort.KafkaConsumer(
        *topics,
        bootstrap_servers=servers,
        group_protocol="auto",
        auto_offset_reset="earliest",
        **options,
    )


def chosen(consumer: kohort.KafkaConsumer) -> tuple[str | None, str]:
    """Return the group protocol and the reason, as explain() has them."""
    group = consumer.explain().as_dict()["group"]
    assert group is not None
    assert f"group protocol: {group['group_protocol']}, because" in str(consumer.explain())
    return group["group_protocol"], group["group_protocol_reason"]


def write(broker: Broker, topic: str) -> None:
    for number in range(COUNT):
        broker.write(topic, b"%d" % number)


@contextmanager
def running(server: KafkaServer, config: pytest.Config) -> Iterator[Broker]:
    """Run a server for the block, with its log in the report of a failure."""
    config.stash[SERVERS].append(server)
    try:
        server.start()
        yield Broker(server.bootstrap_servers)
    finally:
        config.stash[SERVERS].remove(server)
        server.kill()


def read_and_commit(broker: Broker, group: str, topic: str) -> tuple[str | None, str]:
    """Read all records, commit, and read nothing again. Return the choice of the protocol."""
    with auto(broker.bootstrap_servers, topic, group_id=group) as consumer:
        assert len(read(consumer, COUNT)) == COUNT
        consumer.commit()
        found = chosen(consumer)
        wait_until(lambda: set(consumer.lag().values()) == {0}, lambda: consumer.poll(50))
    assert sum(broker.committed(group).values()) == COUNT
    with auto(broker.bootstrap_servers, topic, group_id=group) as consumer:
        wait_until(lambda: consumer.assignment(), lambda: consumer.poll(timeout_ms=50))
        assert consumer.poll(timeout_ms=200) == {}
    return found


@pytest.mark.real_kafka
@pytest.mark.old_kafka
@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("2.8.2", "the coordinator does not serve the consumer protocol"),
        ("3.9.2", "early version"),
        ("off", "not enabled"),
    ],
)
def test_auto_joins_by_the_classic_protocol(
    version: str,
    reason: str,
    unique: Unique,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    if version == "off":
        server: KafkaServer = WithoutConsumerProtocol(jars(), tmp_path, SMALL)
    else:
        kind = ZooKeeperKafka if version.startswith("2.") else KafkaServer
        server = kind(old_jars(version), tmp_path, SMALL)
    with running(server, pytestconfig) as broker:
        topic = broker.create_topic(unique("topic"), 2)
        write(broker, topic)
        protocol, why = read_and_commit(broker, unique("group"), topic)
        assert protocol == "classic"
        assert reason in why
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    assert f"group protocol classic: {why}" in caplog.text


def test_auto_joins_by_the_consumer_protocol(broker: Broker, unique: Unique) -> None:
    topic = broker.create_topic(unique("topic"), 2)
    write(broker, topic)
    protocol, why = read_and_commit(broker, unique("group"), topic)
    assert (protocol, why) == (
        "consumer",
        "the cluster has it enabled and the group has no classic members",
    )


def test_auto_joins_classic_members_by_their_protocol(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("topic"), 2), unique("group")
    servers = broker.bootstrap_servers
    with (
        auto(servers, topic, group_id=group, heartbeat_interval_ms=100) as first,
        auto(servers, topic, group_id=group) as second,
    ):

        def poll() -> None:
            first.poll(timeout_ms=50)
            second.poll(timeout_ms=50)

        wait_until(lambda: len(first.assignment()) == 2, lambda: first.poll(timeout_ms=50))
        wait_until(lambda: len(second.assignment()) == len(first.assignment()) == 1, poll)
        assert (
            chosen(first)[1] == "heartbeat_interval_ms is set, which only the classic protocol has"
        )
        protocol, why = chosen(second)
        assert protocol == "classic"
        assert "has members of the classic protocol" in why
    with auto(servers, topic, group_id=group) as third:  # the group is empty now
        wait_until(lambda: len(third.assignment()) == 2, lambda: third.poll(timeout_ms=50))
        assert chosen(third)[0] == "consumer"


def test_pattern_of_the_brokers_reads_whole_names(broker: Broker, unique: Unique) -> None:
    name = unique("orders")
    topics = [broker.create_topic(f"{name}.{each}", 1) for each in ("eu", "us")]
    broker.create_topic(f"{name}.eu.old", 1)
    for topic in topics:
        write(broker, topic)
    with auto(broker.bootstrap_servers, group_id=unique("group")) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern(rf"{name}\.[a-z]{{2}}"))
        records: list[Record] = read(consumer, 2 * COUNT)
        assert {record.topic for record in records} == set(topics) == consumer.subscription()
        wait_until(lambda: set(consumer.lag().values()) == {0}, lambda: consumer.poll(50))


def test_pattern_of_the_brokers_raises_when_it_is_invalid(broker: Broker, unique: Unique) -> None:
    with auto(broker.bootstrap_servers, group_id=unique("group")) as consumer:
        consumer.subscribe(pattern=SubscriptionPattern("a(?=b)"))
        with pytest.raises(kohort.KafkaError, match="INVALID_REGULAR_EXPRESSION"):
            wait_until(lambda: False, lambda: consumer.poll(timeout_ms=100))


def test_auto_follows_the_in_process_cluster(unique: Unique) -> None:
    with Cluster(group_version=0) as cluster:
        cluster.create_topic("t", partitions=2)
        with auto(cluster.bootstrap_servers, "t", group_id="g") as consumer:
            wait_until(lambda: consumer.assignment(), lambda: consumer.poll(timeout_ms=50))
            assert chosen(consumer)[0] == "classic"
            with auto(cluster.bootstrap_servers, group_id="h") as other:
                other.subscribe(pattern=SubscriptionPattern("t"))
                with pytest.raises(UnsupportedVersionError, match="needs the consumer protocol"):
                    wait_until(lambda: False, lambda: other.poll(timeout_ms=100))
