"""Records come as aiokafka's, by ``getone()``, ``getmany()`` and iteration."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from typing import Any

import pytest

from tests.compat.aiokafka.conftest import MakeConsumer
from tests.compat.aiokafka.kit import within
from tests.interop.brokers import Broker

pytestmark = pytest.mark.anyio

FIELDS = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "headers",
]


async def test_record_is_a_mutable_dataclass(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str
) -> None:
    broker.write(topic, b"tea", key=None, headers=[("shop", b"one")], timestamp=1234)
    async with make(topic) as consumer:
        record = await within(consumer.getone())
    assert [each.name for each in fields(record)] == FIELDS
    assert isinstance(record, compat.ConsumerRecord)
    expected = compat.ConsumerRecord(
        topic, 0, 0, 1234, 0, None, b"tea", None, -1, 3, (("shop", b"one"),)
    )
    assert record == expected
    record.consumer = consumer
    record.value = "changed"
    assert record


async def test_deserializers_are_called_for_null(
    make: MakeConsumer, broker: Broker, topic: str
) -> None:
    broker.write(topic, b"[1]", key=b"k")
    broker.write(topic, None, key=None)
    broker.write(topic, b"no json", key=b"k")
    consumer = make(
        topic,
        key_deserializer=lambda key: (key or b"none").decode(),
        value_deserializer=lambda value: "null" if value is None else json.loads(value),
    )
    async with consumer:
        found = [await within(consumer.getone()) for _ in range(2)]
        assert [(record.key, record.value) for record in found] == [("k", [1]), ("none", "null")]
        with pytest.raises(json.JSONDecodeError):
            await within(consumer.getone())


async def test_getmany_limits_records_and_partitions(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str
) -> None:
    for number in range(6):
        broker.write(topic, b"%d" % number, partition=number % 2)
    first, second = (compat.TopicPartition(topic, number) for number in range(2))
    async with make(topic) as consumer:
        found = await consumer.getmany(second, timeout_ms=10000.0, max_records=1)
        assert {tp: [each.value for each in records] for tp, records in found.items()} == {
            second: [b"1"]
        }
        assert all(isinstance(tp, compat.TopicPartition) for tp in found)
        rest: list[bytes] = []
        while len(rest) < 3:
            for records in (await consumer.getmany(first, timeout_ms=1000)).values():
                rest += [each.value for each in records]
        assert rest == [b"0", b"2", b"4"]
        with pytest.raises(AssertionError):
            await consumer.getmany("topic")
        with pytest.raises(ValueError, match="max_records"):
            await consumer.getmany(max_records=0)


async def test_iteration_goes_by_way_of_getone(
    make: MakeConsumer, compat: Any, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (b"a", b"b"):
        broker.write(topic, value)
    seen: list[bytes] = []
    original = compat.AIOKafkaConsumer.getone

    async def traced(self: Any, *partitions: Any) -> Any:
        record = await original(self, *partitions)
        seen.append(record.value)
        return record

    monkeypatch.setattr(compat.AIOKafkaConsumer, "getone", traced)
    async with make(topic) as consumer:
        async for record in consumer:
            if record.value == b"b":
                break
    assert seen == [b"a", b"b"]


async def test_cancelled_getone_loses_no_record(
    make: MakeConsumer, broker: Broker, topic: str
) -> None:
    async with make(topic, fetch_max_wait_ms=10) as consumer:
        for number in range(40):
            broker.write(topic, b"%d" % number)
        found: list[bytes] = []
        pause = 0.0
        async with asyncio.timeout(20):
            while len(found) < 40:
                try:
                    async with asyncio.timeout(pause):
                        found.append((await consumer.getone()).value)
                except TimeoutError:
                    pause = (pause + 0.0003) % 0.02
    assert found == [b"%d" % number for number in range(40)]


async def test_stop_ends_pending_calls(
    make: MakeConsumer, compat: Any, topic: str, group: str
) -> None:
    consumer = make(topic, group_id=group)
    await consumer.start()
    one = asyncio.create_task(consumer.getone())
    many = asyncio.create_task(consumer.getmany(timeout_ms=60000))
    later = asyncio.create_task(anext(aiter(consumer)))
    await asyncio.sleep(0.1)
    await within(consumer.stop())
    assert many.done()
    assert many.result() == {}
    for task, error in ((one, compat.ConsumerStoppedError), (later, StopAsyncIteration)):
        with pytest.raises(error):
            await within(task)
    for call in (consumer.getone, consumer.getmany):
        with pytest.raises(compat.ConsumerStoppedError):
            await call()
    with pytest.raises(compat.ConsumerStoppedError):
        aiter(consumer)
    consumer.unsubscribe()
    await consumer.stop()
