"""The first poll of a new consumer: it waits for responses of brokers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import anyio
import pytest

from kohort import AsyncKafkaConsumer
from kohort.network import ByteConnection
from kohort.testing import MemoryCluster
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)
AT_ONCE = 0.05
"""Maximum seconds. The clock moves only while all tasks wait. The shortest back-off is 0.08."""


def assign(consumer: AsyncKafkaConsumer) -> None:
    consumer.assign([T0])


def assign_and_seek(consumer: AsyncKafkaConsumer) -> None:
    consumer.assign([T0])
    consumer.seek(T0, 1)


def subscribe(consumer: AsyncKafkaConsumer) -> None:
    consumer.subscribe(["t"])


def subscribe_by_pattern(consumer: AsyncKafkaConsumer) -> None:
    consumer.subscribe(pattern="^t$")


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("start", [assign, assign_and_seek, subscribe, subscribe_by_pattern])
def test_the_first_poll_takes_no_back_off(
    start: Callable[[AsyncKafkaConsumer], None], committed: bool, brokers: int
) -> None:
    async def main() -> None:
        async with MemoryCluster(brokers, topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b", "c"])
            if committed:
                async with MemoryConsumer(cluster) as other:
                    other.assign([T0])
                    await other.commit({T0: OffsetAndMetadata(1)})
            async with MemoryConsumer(cluster) as consumer:
                began = anyio.current_time()
                start(consumer)
                assert (await values(consumer, 2))[-1] == b"c"
                assert anyio.current_time() - began < AT_ONCE

    run_virtual(main)


def test_without_a_group_too() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            began = anyio.current_time()
            async with MemoryConsumer(cluster, group_id=None) as consumer:
                consumer.assign([T0])
                assert await values(consumer, 1) == [b"a"]
                assert anyio.current_time() - began < AT_ONCE

    run_virtual(main)


ROUND_TRIP = 1.0
"""Seconds, which is far more than all pauses of the consumer."""


class DistantConnection:
    """A connection on which nothing arrives sooner than a round trip after the last request."""

    def __init__(self, connection: ByteConnection) -> None:
        self._connection = connection
        self._sent_at = -math.inf

    async def send(self, buffers: Sequence[bytes | bytearray | memoryview], /) -> None:
        self._sent_at = anyio.current_time()
        await self._connection.send(buffers)

    async def recv_into(self, view: memoryview, /) -> int:
        size = await self._connection.recv_into(view)
        await anyio.sleep_until(self._sent_at + ROUND_TRIP)
        return size

    async def aclose(self) -> None:
        await self._connection.aclose()


@pytest.mark.parametrize(("protocol", "most"), [("consumer", 10), ("auto", 12), ("classic", 14)])
def test_first_record_of_a_new_group_takes_few_round_trips(protocol: str, most: int) -> None:
    """A connection takes two of them, and five connections and requests depend on others."""

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:

            async def connect(host: str, port: int) -> DistantConnection:
                await anyio.sleep(ROUND_TRIP)
                return DistantConnection(await cluster.connect(host, port))

            cluster.produce("t", ["a"])
            began = anyio.current_time()
            async with MemoryConsumer(
                cluster, "t", connect=connect, group_protocol=protocol
            ) as consumer:
                assert await values(consumer, 1) == [b"a"]
                assert (anyio.current_time() - began) / ROUND_TRIP < most + 0.5
            assert [each.api for each in cluster.requests].count("Metadata") == 1

    run_virtual(main)
