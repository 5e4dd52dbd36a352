"""A deserializer that needs I/O raises, and the poll does the I/O for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kohort import RecordDeserializationError, TopicPartition
from kohort.errors import DataError, DeserializerNotReadyError
from kohort.testing import Cluster
from tests.support.awaited import EACH_API

ORDERS = TopicPartition("orders", 0)


class Lazy:
    """A deserializer that has to load each first letter of a value."""

    def __init__(self, failures: int = 0) -> None:
        self.loaded: list[str] = []
        self.threads: set[int] = set()
        self._failures = failures

    def deserialize(self, topic: str, headers: Any, data: bytes) -> str:
        text = data.decode()
        if text[0] not in self.loaded:
            raise DeserializerNotReadyError("not loaded", prepare=lambda: self._load(text[0]))
        if text.endswith("!"):
            raise ValueError("bad data")
        return text.upper()

    def _load(self, letter: str) -> None:
        self.threads.add(threading.get_ident())
        if self._failures:
            self._failures -= 1
            raise ConnectionError("away")
        self.loaded.append(letter)


async def values(consumer: Any, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        polled = await consumer.poll(timeout_ms=60_000)
        found += [record.value for records in polled.values() for record in records]
    return found


@pytest.mark.anyio
@EACH_API
async def test_poll_prepares_once_and_skips_nothing(consumer_class: Any) -> None:
    lazy, errors = Lazy(), []

    def on_error(error: DataError) -> str:
        errors.append(error)
        return "skip"

    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea", "milk", "toast", "mint!", "mango"])
        async with consumer_class(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=lazy,
            on_error=on_error,
        ) as consumer:
            assert await values(consumer, 4) == ["TEA", "MILK", "TOAST", "MANGO"]
    assert lazy.loaded == ["t", "m"]
    assert [error.offset for error in errors] == [3]


@pytest.mark.anyio
@EACH_API
async def test_iteration_prepares_the_deserializer(consumer_class: Any) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea", "milk"])
        async with consumer_class(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=Lazy(),
        ) as consumer:
            found = [(await consumer.__anext__()).value for _ in range(2)]
    assert found == ["TEA", "MILK"]


@pytest.mark.anyio
@EACH_API
async def test_poll_raises_failure_to_prepare_and_reads_later(consumer_class: Any) -> None:
    lazy = Lazy(failures=1)
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea"])
        async with consumer_class(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=lazy,
            on_error="skip",
        ) as consumer:
            with pytest.raises(ConnectionError):
                await values(consumer, 1)
            assert await values(consumer, 1) == ["TEA"]


@pytest.mark.anyio
async def test_async_poll_prepares_in_a_worker_thread() -> None:
    from kohort import AsyncKafkaConsumer

    lazy = Lazy()
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea"])
        async with AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=lazy,
        ) as consumer:
            await values(consumer, 1)
    assert threading.get_ident() not in lazy.threads


@pytest.mark.anyio
@EACH_API
async def test_error_after_preparing_is_raised_as_ever(consumer_class: Any) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", ["tea!"])
        async with consumer_class(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=Lazy(),
        ) as consumer:
            with pytest.raises(RecordDeserializationError, match="bad data"):
                await values(consumer, 1)
            assert await consumer.position(ORDERS) == 0
