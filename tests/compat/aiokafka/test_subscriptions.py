"""Subscriptions, assignments and listeners change when aiokafka's do."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from kohort.testing import Cluster
from tests.compat.aiokafka.conftest import MakeConsumer
from tests.compat.aiokafka.kit import make_listener, until, within
from tests.interop.brokers import Broker

pytestmark = pytest.mark.anyio


async def test_wrong_subscriptions_raise(make: MakeConsumer, compat: Any, topic: str) -> None:
    consumer = make()
    for arguments in ((), ([topic], "a.*"), (topic,), ([topic], None, object())):
        with pytest.raises(TypeError):
            consumer.subscribe(*arguments)
    with pytest.raises(ValueError, match="not a valid pattern"):
        consumer.subscribe(pattern="a[")
    consumer.subscribe([topic])
    with pytest.raises(compat.errors.IllegalStateError, match="mutually exclusive"):
        consumer.subscribe(pattern="a.*")
    with pytest.raises(compat.errors.IllegalStateError, match="mutually exclusive"):
        consumer.assign([compat.TopicPartition(topic, 0)])


async def test_calls_before_start_raise(make: MakeConsumer, compat: Any, topic: str) -> None:
    consumer = make(topic)
    for call in (consumer.getone, consumer.getmany, consumer.topics):
        with pytest.raises(compat.errors.IllegalStateError, match="not started"):
            await call()
    await consumer.start()
    with pytest.raises(AssertionError, match="twice"):
        await consumer.start()


async def test_listener_hears_each_join_as_in_aiokafka(
    make: MakeConsumer, compat: Any, topic: str, group: str
) -> None:
    both = [(topic, 0), (topic, 1)]
    listener, other = make_listener(compat), make_listener(compat)
    consumer = make(group_id=group)
    listener.consumer = consumer
    consumer.subscribe([topic], listener=listener)
    await within(consumer.start())
    await until(lambda: len(listener.positions) == 2)
    assert listener.calls == [("revoked", []), ("assigned", both)]
    consumer.subscribe([topic], listener=other)
    assert consumer.assignment() == frozenset()
    await until(lambda: len(other.calls) == 2)
    assert other.calls == [("revoked", both), ("assigned", both)]
    assert consumer.assignment() == set(both)
    await consumer.stop()
    assert len(listener.calls) == len(other.calls) == 2


async def test_listener_error_is_logged(
    make: MakeConsumer, compat: Any, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(compat.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: set[Any]) -> None:
            raise ValueError("revoked")

        async def on_partitions_assigned(self, assigned: set[Any]) -> None:
            raise ValueError("assigned")

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Broken())
    await within(consumer.start())
    assert await consumer.getmany() == {}
    assert [each.getMessage().split()[1] for each in caplog.records if each.exc_info] == [
        "on_partitions_revoked",
        "on_partitions_assigned",
    ]


async def test_unsubscribe_acts_at_once(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, group: str
) -> None:
    for number in range(3):
        broker.write(topic, b"%d" % number)
    listener = make_listener(compat)
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=listener)
    await within(consumer.start())
    consumer.unsubscribe()
    assert (consumer.subscription(), consumer.assignment()) == (frozenset(), frozenset())
    with pytest.raises(compat.errors.IllegalStateError, match="Not subscribed"):
        await consumer.commit()
    chosen = compat.TopicPartition(topic, 0)
    consumer.assign([chosen])
    consumer.seek(chosen, 2)
    assert consumer.assignment() == {chosen}
    record = await within(consumer.getone())
    assert (record.offset, record.value) == (2, b"2")
    consumer.unsubscribe()
    consumer.subscribe(pattern=re.compile(re.escape(topic)))
    waiter = consumer._subscription.wait_for_assignment()
    await within(waiter)
    assert consumer.subscription() == {topic}
    assert [name for name, _ in listener.calls] == ["revoked", "assigned"]


async def test_members_rebalance_while_not_polled(
    make: MakeConsumer, broker: Broker, topic: str, group: str
) -> None:
    for number in range(4):
        broker.write(topic, b"%d" % number, partition=number % 2)
    first, second = (make(topic, group_id=group, enable_auto_commit=False) for _ in range(2))
    await within(first.start())
    await within(first.getone())
    await within(second.start())
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
    assert not first.assignment() & second.assignment()


async def test_start_creates_missing_topics(compat: Any) -> None:
    listener = make_listener(compat)
    with Cluster() as cluster:
        consumer = compat.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, group_id="billing"
        )
        consumer.subscribe(["orders"], listener=listener)
        await within(consumer.start())
        await asyncio.sleep(0.3)
        assert [name for name, _ in listener.calls] == ["revoked", "assigned"]
        numbers = {tp.partition for tp in consumer.assignment()}
        assert consumer.partitions_for_topic("orders") == numbers != set()
        await consumer.stop()


async def test_start_waits_for_a_topic_that_is_not_created(
    make: MakeConsumer, compat: Any, broker: Broker, group: str
) -> None:
    consumer = make(f"missing-{group}", group_id=group, request_timeout_ms=800)
    with pytest.raises(compat.errors.UnknownTopicOrPartitionError):
        await within(consumer.start())


async def test_group_error_comes_out_of_start(
    make: MakeConsumer, compat: Any, topic: str, group: str
) -> None:
    consumer = make(topic, group_id=group, session_timeout_ms=10, heartbeat_interval_ms=3)
    with pytest.raises(compat.errors.InvalidSessionTimeoutError):
        await within(consumer.start())
    assert consumer._fetcher is None


async def test_unreachable_broker_comes_out_of_start(compat: Any) -> None:
    consumer = compat.AIOKafkaConsumer(bootstrap_servers="localhost:1")
    for _ in range(2):
        with pytest.raises(compat.errors.KafkaConnectionError, match="localhost:1"):
            await within(consumer.start())
    await consumer.stop()


async def test_stop_in_listener_returns(
    make: MakeConsumer, compat: Any, topic: str, group: str
) -> None:
    consumer = make(group_id=group)

    class Stops(compat.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: set[Any]) -> None:
            pass

        async def on_partitions_assigned(self, assigned: set[Any]) -> None:
            if self.armed:
                await consumer.stop()

        armed = False

    listener = Stops()
    consumer.subscribe([topic], listener=listener)
    await within(consumer.start())
    listener.armed = True
    pending = asyncio.create_task(consumer.getmany(timeout_ms=60000))
    consumer.subscribe([topic], listener=listener)
    assert await within(pending) == {}
    assert consumer._closed
