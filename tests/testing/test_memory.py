"""The memory of a stopped cluster: it keeps nothing that it stored."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.broker.log import _segment
from kohort.testing import Cluster, MemoryCluster

RECORDS = [b"x" * 1_000] * 100
Buffers = list["weakref.ref[bytearray]"]


class TrackedBuffer(bytearray):
    """A buffer with support for weak references."""


@pytest.fixture
def buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Buffers]:
    """References to all buffers of logs. The garbage collector does not run during the test."""
    found: Buffers = []

    def make(capacity: int) -> bytearray:
        buffer = TrackedBuffer(capacity)
        found.append(weakref.ref(buffer))
        return buffer

    monkeypatch.setattr(_segment, "bytearray", make, raising=False)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


def in_use(buffers: Buffers) -> int:
    """Return the number of buffers in memory."""
    return sum(buffer() is not None for buffer in buffers)


def test_a_stopped_cluster_frees_its_logs_without_the_gc(buffers: Buffers) -> None:
    with Cluster(brokers=2, topics={"t": 3}) as cluster:
        cluster.produce("t", RECORDS)
        with KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            count = 0
            while count < len(RECORDS):
                count += sum(map(len, consumer.poll(timeout_ms=100).values()))
        assert in_use(buffers) >= 3
    assert in_use(buffers) == 0


def test_stopped_cluster_frees_its_logs_with_clients_connected(buffers: Buffers) -> None:
    with Cluster(topics={"t": 3}) as cluster:
        cluster.produce("t", RECORDS)
        consumer = KafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        while not consumer.poll(timeout_ms=100):
            pass
        cluster.stop()
        assert in_use(buffers) == 0
        consumer.close()


@pytest.mark.anyio
async def test_a_memory_cluster_frees_its_logs_without_the_gc(buffers: Buffers) -> None:
    async with MemoryCluster(topics={"t": 3}) as cluster:
        cluster.produce("t", RECORDS)
        async with AsyncKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            connect=cluster.connect,
        ) as consumer:
            with anyio.fail_after(60):
                while not await consumer.poll(timeout_ms=100):
                    pass
        assert in_use(buffers) >= 3
    assert in_use(buffers) == 0
