"""The memory of a closed consumer: its last reference frees it, without the garbage collector."""

from __future__ import annotations

import gc
import itertools
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, ConsumerOptions, KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import Cluster

PARTITIONS = 400
FEW = 60
"""Maximum unreachable objects. A closed consumer once left 5,800, and more with more partitions."""
HOW = pytest.mark.parametrize("how", ["assign", "subscribe"])

numbers = itertools.count()


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> str:
    cluster.create_topic("many", PARTITIONS)
    for partition in range(0, PARTITIONS, 8):
        cluster.produce("many", [b"a", b"b"], partition=partition)
    return cluster.bootstrap_servers


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _options(servers: str, how: str) -> dict[str, Any]:
    group = f"group-{next(numbers)}" if how == "subscribe" else None
    return {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }


def _choose(consumer: Any, how: str) -> None:
    if how == "subscribe":
        consumer.subscribe(["many"])
    else:
        consumer.assign([TopicPartition("many", number) for number in range(PARTITIONS)])


def _parts(consumer: Any) -> list[weakref.ref[Any]]:
    engine = consumer._driver.engine
    parts = [consumer, engine, engine.fetcher, engine.cluster, engine.coordinator]
    return [weakref.ref(part) for part in parts if part is not None]


def _life(servers: str, how: str) -> list[weakref.ref[Any]]:
    with KafkaConsumer(**_options(servers, how)) as consumer:
        _choose(consumer, how)
        left = PARTITIONS // 8 * 2
        while left > 0:
            left -= sum(map(len, consumer.poll(timeout_ms=1000).values()))
    return _parts(consumer)


async def _alife(servers: str, how: str) -> list[weakref.ref[Any]]:
    consumer = AsyncKafkaConsumer(**_options(servers, how))
    _choose(consumer, how)
    async with consumer:
        left = PARTITIONS // 8 * 2
        while left > 0:
            left -= sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
    return _parts(consumer)


def _alive(parts: list[weakref.ref[Any]]) -> list[str]:
    return [type(part).__name__ for ref in parts if (part := ref()) is not None]


@HOW
def test_consumer_is_freed_without_collector_when_closed(servers: str, how: str) -> None:
    _life(servers, how)  # imports and caches of the first consumer
    with collector_off():
        assert _alive(_life(servers, how)) == []
        assert gc.collect() <= FEW


@HOW
@pytest.mark.anyio
async def test_async_consumer_is_freed_without_collector(servers: str, how: str) -> None:
    await _alife(servers, how)
    with collector_off():
        parts = await _alife(servers, how)
        assert _alive(parts) == []
        assert gc.collect() <= FEW


def test_consumer_is_freed_when_it_never_started() -> None:
    with collector_off():
        consumer = KafkaConsumer("many", bootstrap_servers="localhost:1", group_id="g")
        parts = _parts(consumer)
        consumer.close()
        del consumer
        assert _alive(parts) == []


def test_consumer_is_freed_when_log_records_are_kept(cluster: Cluster) -> None:
    """A log record of a failed commit once held the exception and thus the consumer."""
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, keeper = logging.getLogger("kohort.consumer"), Keeper()
    cluster.create_topic("orders", 1)
    cluster.produce("orders", [b"a"])
    options: ConsumerOptions = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "kept",
        "auto_offset_reset": "earliest",
    }
    logger.addHandler(keeper)
    try:
        with collector_off():
            consumer = KafkaConsumer("orders", **options)
            while not consumer.poll(timeout_ms=1000):
                pass
            with cluster.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
                consumer.close()
            parts = _parts(consumer)
            del consumer
            assert any("commit failed" in record.getMessage() for record in records)
            assert _alive(parts) == []
    finally:
        logger.removeHandler(keeper)
