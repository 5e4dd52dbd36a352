"""Offsets of a consumer with manual assignment, on brokers that delete them after a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.reading import consumer, read
from tests.interop.waiting import wait_until
from tests.support.kafka_server import KafkaServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
Unique = Callable[[str], str]


@pytest.fixture
def ours() -> Iterator[Broker]:
    settings = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 2000}
    with Cluster(auto_create_topics=False, group_settings=settings) as cluster:
        yield Broker(cluster.bootstrap_servers)


@pytest.fixture
def theirs(start_kafka: Callable[..., KafkaServer]) -> Iterator[Broker]:
    properties = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "2000",
    }
    server = start_kafka(properties)
    yield Broker(server.bootstrap_servers)
    server.stop()


@pytest.fixture(params=["ours", pytest.param("theirs", marks=pytest.mark.real_kafka)])
def forgetful(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


def test_unchanged_offsets_outlive_the_retention(forgetful: Broker, unique: Unique) -> None:
    topic = forgetful.create_topic(unique("kept"), 2)
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    forgetful.write(topic, b"one")
    kept, gone = unique("kept"), unique("gone")
    address = forgetful.bootstrap_servers
    options: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 500}
    again: dict[str, Any] = {"offsets_recommit_interval_ms": 10_000, "group_id": kept}
    never: dict[str, Any] = {"offsets_recommit_interval_ms": None, "group_id": gone}
    with consumer(address, **options, **again) as one, consumer(address, **options, **never) as two:
        for each in (one, two):
            each.assign(places)
            read(each, 1)
            each.poll()

        def poll() -> None:
            one.poll(timeout_ms=500)
            two.poll(timeout_ms=500)

        expected = {(topic, 0): 1, (topic, 1): 0}
        wait_until(lambda: forgetful.committed(gone) == expected, poll)
        wait_until(lambda: not forgetful.committed(gone), poll, deadline_s=150)
        assert forgetful.committed(kept) == expected
