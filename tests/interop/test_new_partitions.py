"""Topics and partitions created while a consumer with "latest" runs, on both clusters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import UnknownTopicOrPartitionError
from tests.interop.brokers import Broker
from tests.interop.reading import consumer, read_on
from tests.interop.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
Unique = Callable[[str], str]
OPTIONS: dict[str, Any] = {"auto_offset_reset": "latest", "metadata_max_age_ms": 500}


@pytest.mark.parametrize("grouped", [True, False])
def test_what_appears_later_is_read_from_its_beginning(
    broker: Broker, unique: Unique, grouped: bool
) -> None:
    topic, group = unique("later"), unique("later") if grouped else None
    with consumer(broker.bootstrap_servers, topic, group_id=group, **OPTIONS) as one:
        with suppress(UnknownTopicOrPartitionError):
            for _ in range(5):
                assert one.poll(timeout_ms=200) == {}
        broker.create_topic(topic)
        broker.write(topic, b"first")
        assert read_on(one, 1) == [b"first"]
        if grouped:
            one.commit()
        broker.add_partitions(topic, 2)
        later = Broker(broker.bootstrap_servers)  # a producer that refreshes the partitions
        wait_until(lambda: len(later.admin.list_topics(topic).topics[topic].partitions) == 2)
        later.write(topic, b"second", partition=1)
        assert read_on(one, 1) == [b"second"]


@pytest.mark.anyio
async def test_nothing_is_missed_after_start(broker: Broker, unique: Unique) -> None:
    topic = broker.create_topic(unique("start"), 3)
    broker.write(topic, b"before")
    options = {**OPTIONS, "group_id": unique("start"), "auto_offset_reset": "latest"}
    async with AsyncKafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, **options
    ) as one:
        broker.write(topic, b"after")
        records = await one.poll(timeout_ms=20_000)
        assert [r.value for r in records[TopicPartition(topic, 0)]] == [b"after"]


def _assign(member: KafkaConsumer, count: int) -> None:
    """Poll until the member has this number of partitions."""

    def has_all() -> bool:
        member.poll(timeout_ms=100)
        return len(member.assignment()) == count

    wait_until(has_all)


@pytest.mark.parametrize("before", ["classic", "consumer"])
def test_a_static_member_finds_partitions_added_meanwhile(
    broker: Broker, unique: Unique, before: str
) -> None:
    """The group keeps its assignment when the member returns by the classic protocol.

    A consumer group becomes classic then, and no member knows that it leads.
    """
    topic = broker.create_topic(unique("static"), 2)
    options: dict[str, Any] = {**OPTIONS, "group_id": topic, "group_instance_id": "a"}
    server = broker.bootstrap_servers
    with KafkaConsumer(
        topic, **options | {"bootstrap_servers": server, "group_protocol": before}
    ) as first:
        _assign(first, 2)
    if before == "classic":
        broker.add_partitions(topic, 3)
    with consumer(server, topic, group_protocol="classic", **options) as again:
        if before == "consumer":
            _assign(again, 2)
            broker.add_partitions(topic, 3)
        _assign(again, 3)
