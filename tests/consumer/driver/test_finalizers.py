"""Consumers that a __del__ method closes, called by the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.testing import Cluster


class Program:
    """A listener that owns its consumer, so that only the garbage collector frees both.

    It exists before the consumer, and the collector finalizes older objects first.
    """

    make: Any

    def __init__(self, topic: str, calls: list[str], options: dict[str, Any]) -> None:
        self.calls = calls
        self.consumer = self.make(**options)
        self.consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append("assigned")

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.calls.append("revoked")


class SyncProgram(Program):
    make = KafkaConsumer

    def __del__(self) -> None:
        self.consumer.close()
        self.calls.append("closed")


class AsyncProgram(Program):
    make = AsyncKafkaConsumer

    def __del__(self) -> None:
        stopping.append(asyncio.create_task(self.consumer.close()))


stopping: list[asyncio.Task[None]] = []


def test_close_commits_when_the_collector_frees_its_owner(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    """The collector clears weak references before it calls __del__ methods."""
    calls: list[str] = []
    cluster.produce(topic, [b"a", b"b"], partition=0)
    program = SyncProgram(topic, calls, {"group_id": group, **options})
    while not program.consumer.poll(timeout_ms=1000):
        pass
    del program
    gc.collect()
    assert calls == ["assigned", "revoked", "closed"]
    assert cluster.committed(group)[TopicPartition(topic, 0)].offset == 2


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_stop_calls_listener_when_the_collector_frees_owner(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    """The consumer's finalizer warns. It has ended the connections before stop() runs."""
    calls: list[str] = []
    cluster.produce(topic, [b"a", b"b"], partition=0)
    program = AsyncProgram(topic, calls, {"group_id": group, **options})
    await program.consumer.start()
    del program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    await stopping.pop()
    assert calls == ["assigned", "revoked"]
