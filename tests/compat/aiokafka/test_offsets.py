"""Commits, positions and offsets have aiokafka's checks and results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import kohort.compat.aiokafka as package
from tests.compat.aiokafka.conftest import MakeConsumer
from tests.compat.aiokafka.kit import within
from tests.interop.brokers import Broker

pytestmark = pytest.mark.anyio


async def test_commit_checks_in_the_order_of_aiokafka(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, group: str
) -> None:
    broker.write(topic, b"a")
    tp, other = compat.TopicPartition(topic, 0), compat.TopicPartition(topic, 7)
    alone = make(topic)
    await alone.start()
    for call in (alone.commit(), alone.committed(tp), alone.seek_to_committed(tp)):
        with pytest.raises(compat.IllegalOperation, match="Requires group_id"):
            await call
    consumer = make(topic, group_id=group, enable_auto_commit=False)
    await within(consumer.start())
    for wrong, error in (
        ({}, ValueError),
        ([tp], ValueError),
        ({tp: (1, "a", 3)}, ValueError),
        ({"topic": 1}, TypeError),
        ({tp: (1, b"bytes")}, TypeError),
        ({other: 1}, compat.errors.IllegalStateError),
    ):
        with pytest.raises(error):
            await consumer.commit(wrong)
    assert await consumer.committed(tp) is None
    await consumer.commit({tp: (1, "text")})
    assert await consumer.committed(tp) == 1
    await consumer.commit({tp: 0})
    await within(consumer.getone(tp))
    await consumer.commit()
    assert await consumer.committed(tp) == 1


async def test_stop_commits_returned_records(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, group: str
) -> None:
    for value in (b"a", b"b"):
        broker.write(topic, value)
    with pytest.raises(KeyError):
        async with make(topic, group_id=group) as consumer:
            assert (await within(consumer.getone())).value == b"a"
            raise KeyError
    async with make(topic, group_id=group) as consumer:
        assert (await within(consumer.getone())).value == b"b"


async def test_seeks_and_positions(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, group: str
) -> None:
    for value in (b"a", b"b", b"c"):
        broker.write(topic, value)
    tp, empty = (compat.TopicPartition(topic, number) for number in range(2))
    foreign = compat.TopicPartition(topic, 7)
    async with make(topic, group_id=group, enable_auto_commit=False) as consumer:
        for offset in (-1, "1", None):
            with pytest.raises(ValueError, match="positive integer"):
                consumer.seek(tp, offset)
        for wrong in (consumer.pause, consumer.resume):
            with pytest.raises(compat.errors.IllegalStateError):
                wrong(foreign)
        with pytest.raises(compat.errors.IllegalStateError):
            consumer.seek(foreign, 1)
        with pytest.raises(compat.errors.IllegalStateError, match="is not assigned"):
            await consumer.position(foreign)
        with pytest.raises(TypeError):
            await consumer.seek_to_end("topic")
        with pytest.raises(AssertionError, match="not assigned"):
            consumer.highwater(foreign)
        consumer.seek(partition=tp, offset=1)
        assert (await within(consumer.getone(tp))).value == b"b"
        assert consumer.highwater(tp) == 3
        assert consumer.last_stable_offset(tp) == -1
        assert consumer.last_poll_timestamp(tp) > 0
        assert await consumer.seek_to_beginning() is True
        assert await consumer.position(tp) == 0
        assert await consumer.seek_to_end(tp) is True
        assert await consumer.position(tp) == 3
        await consumer.commit({tp: 2})
        assert await consumer.seek_to_committed() == {tp: 2, empty: None}
        assert await consumer.position(tp) == 2
        await consumer.commit({tp: 0})
        assert await consumer.seek_to_committed(tp) == {tp: 0}
        assert await consumer.position(tp) == 0
        consumer.seek(tp, 2)
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.getmany(timeout_ms=200) == {}
        consumer.resume(tp)
        assert (await within(consumer.getone())).value == b"c"


async def test_offsets_by_time_are_pairs(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str
) -> None:
    broker.write(topic, b"a", timestamp=1000)
    broker.write(topic, b"b", timestamp=2000)
    tp, empty = (compat.TopicPartition(topic, number) for number in range(2))
    async with make() as consumer:
        found = await consumer.offsets_for_times({tp: 1500, empty: 0})
        assert found == {tp: (1, 2000), empty: None}
        assert isinstance(found[tp], compat.OffsetAndTimestamp)
        assert await consumer.offsets_for_times({}) == {}
        with pytest.raises(ValueError, match="cannot be negative"):
            await consumer.offsets_for_times({tp: -1})
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp, empty]) == {tp: 2, empty: 0}
        assert topic in await consumer.topics()


async def test_errors_of_data_have_the_arguments_of_aiokafka(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, group: str
) -> None:
    broker.write(topic, b"a")
    tp = compat.TopicPartition(topic, 0)
    consumer = make(group_id=group, auto_offset_reset="none")
    await consumer.start()
    consumer.assign([tp])
    with pytest.raises(compat.errors.NoOffsetForPartitionError) as missing:
        await within(consumer.getone())
    assert missing.value.args[0] == tp
    consumer.seek(tp, 7)
    with pytest.raises(compat.errors.OffsetOutOfRangeError) as outside:
        await within(consumer.getone())
    assert outside.value.args[0] == {tp: 7}
    consumer.seek(tp, 0)
    assert (await within(consumer.getone())).value == b"a"


async def test_transaction_takes_offsets_of_the_consumer(
    broker: Broker, topic: str, group: str
) -> None:
    broker.write(topic, b"a")
    tp = package.TopicPartition(topic, 0)
    producer = package.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id=group
    )
    consumer = package.AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with producer, consumer:
        found = await within(consumer.getmany(timeout_ms=10000))
        offsets = {each: records[-1].offset + 1 for each, records in found.items()}
        async with producer.transaction():
            await producer.send(topic, b"b", partition=1)
            await producer.send_offsets_to_transaction(offsets, group)
        for _ in range(100):
            if await consumer.committed(tp) == 1:
                break
            await asyncio.sleep(0.05)
        assert await consumer.committed(tp) == 1
