"""Fetch protocol on Apache Kafka and on kohort's cluster: sessions, topic ids,
restarted leaders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kohort import TopicPartition
from tests.interop.brokers import Broker
from tests.interop.reading import consumer, read
from tests.support.kafka_server import KafkaServer

pytestmark = pytest.mark.timeout(120)
PARTITIONS = 8
Unique = Callable[[str], str]


def test_fetch_session_has_all_records_whatever_was_requested(
    broker: Broker, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kohort.fetcher")
    topic = broker.create_topic(unique("sessions"), PARTITIONS)
    feed = broker.feed(topic, PARTITIONS)
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with consumer(broker.bootstrap_servers) as one:
        one.assign(places)
        for round in range(10):
            # The session forgets a paused partition, and adds it again.
            one.pause(*places[round % 4 :: 4])
            feed.write(3)
            read(one, 3 * (PARTITIONS - len(one.paused())))
            one.resume(*one.paused())
            read(one, 3 * PARTITIONS // 4)
        assert {one.position(tp) for tp in places} == {30}
        assert {one.highwater(tp) for tp in places} == {30}
        assert one.metrics()
    assert not [each for each in caplog.messages if "trying again" in each]


def test_a_topic_made_anew_is_another_topic(broker: Broker, unique: Unique) -> None:
    topic = broker.create_topic(unique("anew"))
    with consumer(broker.bootstrap_servers) as one:
        one.assign([TopicPartition(topic, 0)])
        for number in range(3):
            broker.write(topic, b"%d" % number)
        assert [record.value for record in read(one, 3)] == [b"0", b"1", b"2"]
        broker.delete_topic(topic)
        broker.create_topic(topic)
        broker.write(topic, b"new")
        assert [record.value for record in read(one, 1)] == [b"new"]


@pytest.mark.long  # Kafka is killed and started
@pytest.mark.real_kafka
def test_restarted_leader_has_a_new_epoch_without_truncation(
    kafka: KafkaServer, apache: Broker, unique: Unique
) -> None:
    topic = apache.create_topic(unique("epochs"))
    with consumer(apache.bootstrap_servers, group_id=unique("epochs")) as one:
        one.subscribe([topic])
        apache.write(topic, b"before")
        [before] = read(one, 1)
        one.commit()
        kafka.kill()
        kafka.start()
        apache.write(topic, b"after")
        [after] = read(one, 1)
        assert (before.offset, after.offset) == (0, 1)
        assert after.leader_epoch is not None and before.leader_epoch is not None
        assert after.leader_epoch > before.leader_epoch
