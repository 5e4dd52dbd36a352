"""Subscriptions and their changes: patterns, other topics, no topics, and back again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, SubscriptionPattern, TopicPartition
from kohort.errors import IllegalStateError, RebalanceListenerError
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import AsyncRecorder, Recorder, apoll_until, aread, poll_until, read, values


@pytest.mark.parametrize("with_group", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_pattern_takes_in_topics_as_they_appear(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, with_group: bool, compiled: bool
) -> None:
    pattern = f"{topic}-[ab]$"
    consumer = make(group_id=group if with_group else None, metadata_max_age_ms=50)
    consumer.subscribe(pattern=re.compile(pattern) if compiled else pattern)
    assert consumer.poll(50) == {}
    assert consumer.subscription() == set()
    cluster.create_topic(f"{topic}-a")
    cluster.create_topic(f"{topic}-ax")
    poll_until(consumer, consumer.assignment)
    assert consumer.subscription() == {f"{topic}-a"}
    cluster.create_topic(f"{topic}-b")
    cluster.produce(f"{topic}-b", [b"b"])
    assert values(read(consumer, 1)) == [b"b"]
    assert consumer.subscription() == {f"{topic}-a", f"{topic}-b"}
    cluster.delete_topic(f"{topic}-a")
    poll_until(consumer, lambda: consumer.assignment() == {TopicPartition(f"{topic}-b", 0)})
    assert consumer.subscription() == {f"{topic}-b"}


def test_a_pattern_never_means_internal_topics_unless_told(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    make(topic, group_id=group).close()
    consumer = make(group_id=group)
    poll_until(consumer, lambda: "__consumer_offsets" not in consumer.topics())
    consumer.subscribe(pattern=f"__consumer_offsets|{topic}")
    poll_until(consumer, consumer.assignment)
    assert consumer.subscription() == {topic}


def test_other_topics_can_be_subscribed_to(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    other = f"{topic}-other"
    cluster.create_topic(other)
    cluster.produce(topic, [b"old"])
    listener = Recorder()
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=listener)
    poll_until(consumer, consumer.assignment)
    consumer.subscribe([other], listener=listener)
    cluster.produce(other, [b"new"])
    assert values(read(consumer, 1)) == [b"new"]
    old = frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})
    new = frozenset({TopicPartition(other, 0)})
    calls = [(name, partitions) for name, partitions in listener.calls if partitions]
    assert calls == [("assigned", old), ("revoked", old), ("assigned", new)]


def test_a_topic_dropped_and_taken_back_is_delivered_on(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    other = f"{topic}-other"
    cluster.create_topic(other)
    consumer = make(topic, other, group_id=group)
    poll_until(consumer, consumer.assignment)
    consumer.subscribe([other])
    consumer.subscribe([topic, other])
    cluster.produce(topic, [b"here"])
    assert values(read(consumer, 1)) == [b"here"]


def test_unsubscribed_and_subscribed_again_at_once(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"1"])
    consumer = make(topic, group_id=group)
    assert values(read(consumer, 1)) == [b"1"]
    for number in (b"2", b"3", b"4"):
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.subscribe([topic])
        cluster.produce(topic, [number])
        assert values(read(consumer, 1)) == [number]  # the others are committed


def test_unsubscribing_before_the_first_poll_is_nothing(topic: str, make: MakeConsumer) -> None:
    consumer = make(topic)
    consumer.unsubscribe()
    assert consumer.subscription() == set()
    consumer.assign([TopicPartition(topic, 0)])


@pytest.mark.parametrize(
    ("option", "value"), [("group_protocol", "classic"), ("session_timeout_ms", 10_000)]
)
def test_broker_pattern_raises_when_options_are_classic(option: str, value: Any) -> None:
    options = {"group_protocol": "auto", option: value}
    consumer = AsyncKafkaConsumer(bootstrap_servers="x:1", group_id="g", **options)
    with pytest.raises(IllegalStateError, match=f"needs the consumer protocol.*{option}"):
        consumer.subscribe(pattern=SubscriptionPattern("t.*"))


def test_unsubscribe_completes_before_it_raises_listener_error(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    def fail(partitions: Any) -> None:
        raise ZeroDivisionError

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Recorder(revoked=fail))
    poll_until(consumer, consumer.assignment)
    with pytest.raises(RebalanceListenerError):
        consumer.unsubscribe()
    assert consumer.assignment() == set()
    assert not cluster.group(group).members
    consumer.assign([TopicPartition(topic, 0)])


@pytest.mark.anyio
@pytest.mark.parametrize("make_listener", [None, Recorder, AsyncRecorder])
async def test_async_unsubscribed_and_subscribed_again_at_once(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], make_listener: Any
) -> None:
    listener = make_listener() if make_listener else None
    cluster.produce(topic, [b"1"])
    consumer = AsyncKafkaConsumer(group_id=group, **options)
    consumer.subscribe([topic], listener=listener)
    async with consumer:
        assert values(await aread(consumer, 1)) == [b"1"]
        for number in (b"2", b"3"):
            await consumer.unsubscribe()
            consumer.subscribe([topic], listener=listener)
            cluster.produce(topic, [number])
            assert values(await aread(consumer, 1)) == [number]


@pytest.mark.anyio
@pytest.mark.parametrize("make_listener", [None, Recorder, AsyncRecorder])
async def test_async_unsubscribe_commits_tells_the_listener_and_leaves(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], make_listener: Any
) -> None:
    listener = make_listener() if make_listener else None
    cluster.produce(topic, [b"1"], partition=0)
    tp = TopicPartition(topic, 0)
    consumer = AsyncKafkaConsumer(group_id=group, **options)
    consumer.subscribe([topic], listener=listener)
    async with consumer:
        await anext(consumer)
        await consumer.unsubscribe()
        assert not cluster.group(group).members
        assert consumer.assignment() == set()
        assert consumer.subscription() == set()
        assert cluster.committed(group)[tp].offset == 1
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert (await anext(consumer)).value == b"1"
    if listener is not None:
        assert listener.names == ["assigned", "revoked"]


@pytest.mark.anyio
async def test_async_close_after_unsubscribe_still_commits_and_leaves(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    cluster.produce(topic, [b"1"], partition=0)
    async with AsyncKafkaConsumer(topic, group_id=group, **options) as consumer:
        await anext(consumer)
        await consumer.unsubscribe()
    assert cluster.committed(group)[TopicPartition(topic, 0)].offset == 1
    assert not cluster.group(group).members


@pytest.mark.anyio
async def test_async_unsubscribe_then_assign_at_once(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    tp = TopicPartition(topic, 0)
    cluster.produce(topic, [b"1", b"2"], partition=0)
    listener = AsyncRecorder()
    consumer = AsyncKafkaConsumer(topic, group_id=group, **options)
    async with consumer:
        await anext(consumer)
        await consumer.unsubscribe()
        consumer.assign([tp])
        consumer.seek(tp, 1)
        assert (await anext(consumer)).value == b"2"
        await cluster.wait_until_async(lambda: not cluster.group(group).members)
        assert consumer.assignment() == {tp}
        await consumer.unsubscribe()
        consumer.subscribe([topic], listener=listener)
        await apoll_until(consumer, lambda: listener.calls)
        with pytest.raises(IllegalStateError, match=r"Call unsubscribe\(\) first"):
            consumer.assign([tp])
        await consumer.unsubscribe()
        consumer.assign([tp])
    assert listener.names == ["assigned", "revoked"]
