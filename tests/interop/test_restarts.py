"""Restarts of Apache Kafka under its consumers: they continue, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kohort import TopicPartition
from tests.interop.brokers import Broker
from tests.interop.members import Members, assert_read_once, shares
from tests.interop.peers import APIS, Settings
from tests.interop.reading import consumer, join, read
from tests.support.kafka_server import KafkaServer

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(180)]
PARTITIONS = 6
Unique = Callable[[str], str]


@pytest.mark.long  # Kafka is started again
@pytest.mark.parametrize(
    "crash", [False, pytest.param(True, marks=pytest.mark.long)], ids=["stopped", "killed"]
)
def test_a_group_goes_on_when_the_broker_is_back(
    kafka: KafkaServer, apache: Broker, members: Members, unique: Unique, crash: bool
) -> None:
    """The consumers are two members, and one without a group."""
    topic, group = apache.create_topic(unique("restart"), PARTITIONS), unique("restart")
    feed = apache.feed(topic, PARTITIONS)
    feed.write(20)
    both = [
        members.join(APIS[api], Settings(apache.bootstrap_servers, topic, group, api))
        for api in ("sync", "asyncio")
    ]
    members.wait_until(shares(both, [3, 3]), feed.start)
    feed.write(20)
    members.wait_until(lambda: members.count() >= len(feed.written))
    for member in both:
        member.call(lambda peer: peer.commit())
    with consumer(apache.bootstrap_servers) as alone:
        alone.assign([TopicPartition(topic, 0)])
        before = len(read(alone, feed.ends()[topic, 0]))

        kafka.kill() if crash else kafka.stop()
        kafka.start()

        feed.write(20)
        members.wait_until(lambda: members.count() >= len(feed.written))
        assert [r.offset for r in read(alone, 20)] == list(range(before, before + 20))
    members.wait_until(shares(both, [3, 3]))
    feed.write(5)
    members.wait_until(lambda: members.count() >= len(feed.written))
    members.leave()
    assert_read_once(both, feed.written)
    assert apache.committed(group) == feed.ends()


@pytest.mark.long
def test_close_keeps_its_time_limit_while_the_broker_is_away(
    kafka: KafkaServer, apache: Broker, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.consumer.api._sync.CLOSE_TIMEOUT", 300.0)
    topic = apache.create_topic(unique("away"), PARTITIONS)
    reader = consumer(apache.bootstrap_servers, topic, group_id=unique("away"))
    join(reader, sizes=(PARTITIONS,))
    kafka.kill()
    try:
        assert reader.poll(timeout_ms=200) == {}
        started = time.monotonic()
        reader.close(timeout_ms=1000)
        assert time.monotonic() - started < 90, "without the limit it takes 5 minutes"
    finally:
        kafka.start()
