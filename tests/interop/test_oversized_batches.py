"""Batches larger than receive_message_max_bytes, on both clusters."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import RecordTooLargeError
from tests.interop.brokers import Broker
from tests.support.awaited import EACH_API

pytestmark = pytest.mark.timeout(120)
Unique = Callable[[str], str]

LIMIT = 200_000
OPTIONS: dict[str, Any] = {
    "fetch_max_bytes": 100_000,
    "max_partition_fetch_bytes": 50_000,
    "receive_message_max_bytes": LIMIT,
    "fetch_max_wait_ms": 100,
    "retry_backoff_ms": 20,
}
LARGE = os.urandom(600_000)
POLL_MS = 200


class Reader:
    """Poller that reads until enough values came, and keeps the errors."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.values: dict[int, list[bytes]] = {}
        self.errors: list[RecordTooLargeError] = []

    async def read(self, *wanted: tuple[int, bytes], errors: int = 0) -> None:
        """Poll until the ``wanted`` values were returned, and ``errors`` errors were raised."""
        with anyio.fail_after(60):
            while len(self.errors) < errors or any(
                value not in self.values.get(partition, ()) for partition, value in wanted
            ):
                try:
                    await self.poll()
                except RecordTooLargeError as error:
                    self.errors.append(error)

    async def poll(self) -> None:
        """Poll once and keep the values."""
        for tp, records in (await self._consumer.poll(timeout_ms=POLL_MS)).items():
            self.values.setdefault(tp.partition, []).extend(record.value for record in records)


def options(broker: Broker, **more: Any) -> dict[str, Any]:
    """Return the options of a consumer that reads from the beginning."""
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "auto_offset_reset": "earliest",
        **OPTIONS,
        **more,
    }


@pytest.fixture
def topic(broker: Broker, unique: Unique) -> str:
    """Topic with a large batch between two small ones in partition 0, and one record elsewhere."""
    name = broker.create_topic(unique("large"), 3, {"max.message.bytes": "2000000"})
    for value in (b"a", LARGE, b"c"):
        broker.write(name, value)
    for partition in (1, 2):
        broker.write(name, b"x", partition=partition)
    return name


@pytest.mark.anyio
@EACH_API
async def test_only_partition_of_large_batch_fails(
    broker: Broker, topic: str, consumer_class: Any
) -> None:
    async with consumer_class(topic, **options(broker)) as one:
        reader = Reader(one)
        await reader.read((0, b"a"), (1, b"x"), (2, b"x"), errors=1)
        error = reader.errors[0]
        place = TopicPartition(topic, 0)
        assert (error.topic_partition, error.offset, error.next_offset) == (place, 1, 2)
        for word in (f"{topic}-0", f"receive_message_max_bytes={LIMIT}", "seek("):
            assert word in str(error)
        assert any(str(size) in str(error) for size in range(len(LARGE), len(LARGE) + 200))
        assert "plaintext" not in str(error) and "proxy" not in str(error)
        assert str(error) in str(one.explain())
        for partition in (1, 2):
            broker.write(topic, b"y", partition=partition)
        await reader.read((1, b"y"), (2, b"y"))
        one.seek(place, error.next_offset)
        await reader.read((0, b"c"))
        assert reader.values == {0: [b"a", b"c"], 1: [b"x", b"y"], 2: [b"x", b"y"]}


@pytest.mark.anyio
@EACH_API
async def test_skip_passes_exactly_the_large_batch(
    broker: Broker, topic: str, consumer_class: Any
) -> None:
    async with consumer_class(topic, **options(broker, on_error="skip")) as one:
        reader = Reader(one)
        await reader.read((0, b"c"), (1, b"x"), (2, b"x"))
        assert reader.values == {0: [b"a", b"c"], 1: [b"x"], 2: [b"x"]}
        assert reader.errors == []
        figures = one.metrics()["consumer-fetch-manager-metrics"]
        assert figures["batches-skipped-total"] == 1
        assert figures["bytes-skipped-total"] > len(LARGE)


@pytest.mark.anyio
@EACH_API
async def test_pause_pauses_only_partition_of_large_batch(
    broker: Broker, topic: str, consumer_class: Any
) -> None:
    async with consumer_class(topic, **options(broker, on_error="pause")) as one:
        reader = Reader(one)
        place = TopicPartition(topic, 0)
        await reader.read((0, b"a"), (1, b"x"), (2, b"x"))
        with anyio.fail_after(60):
            while place not in one.paused():
                await reader.read()
                await reader.poll()
        broker.write(topic, b"y", partition=1)
        await reader.read((1, b"y"))
        assert reader.errors == []
        one.seek(place, 2)
        one.resume(place)
        await reader.read((0, b"c"))


@pytest.mark.anyio
@EACH_API
async def test_batch_that_fits_alone_comes_alone(
    broker: Broker, unique: Unique, consumer_class: Any
) -> None:
    name = broker.create_topic(unique("wide"), 200)
    value = os.urandom(LIMIT - 1000)
    for number in range(3):
        broker.write(name, value + b"%d" % number)
    broker.write(name, b"x", partition=7)

    async with consumer_class(name, **options(broker)) as one:
        reader = Reader(one)
        await reader.read((0, value + b"2"), (7, b"x"))
        assert reader.values == {0: [value + b"%d" % number for number in range(3)], 7: [b"x"]}
        assert reader.errors == []
