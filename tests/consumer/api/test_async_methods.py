"""Methods of AsyncKafkaConsumer. ``test_methods.py`` has those with one text for both APIs."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.errors import (
    ConfigurationError,
    ConsumerClosedError,
    IllegalStateError,
)
from kohort.testing import Cluster
from tests.consumer.kit import values

pytestmark = pytest.mark.anyio

LETTERS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    """A partition with four records."""
    cluster.produce(topic, LETTERS, partition=0)
    return TopicPartition(topic, 0)


async def test_records_can_be_had_of_some_partitions_only(
    cluster: Cluster, tp: TopicPartition, options: dict[str, Any]
) -> None:
    other = TopicPartition(tp.topic, 1)
    async with AsyncKafkaConsumer(tp.topic, **options) as consumer:
        assert consumer.assignment() == {tp, other}  # all partitions, from the start
        assert values((await consumer.poll(10_000, 1, partitions=[tp]))[tp]) == [b"a"]
        cluster.produce(tp.topic, [b"z"], partition=1)
        assert values((await consumer.poll(10_000, partitions=[other]))[other]) == [b"z"]
        assert await consumer.poll(50, partitions=[other]) == {}
        assert values((await consumer.poll(10_000, partitions=[tp]))[tp]) == LETTERS[1:]


async def test_what_the_last_fetch_told(tp: TopicPartition, options: dict[str, Any]) -> None:
    async with AsyncKafkaConsumer(**options) as consumer:
        consumer.assign([tp])
        assert consumer.highwater(tp) is None
        assert consumer.last_stable_offset(tp) is None
        assert consumer.last_poll_timestamp(tp) is None
        before = time.time() * 1000
        await anext(consumer)
        assert consumer.highwater(tp) == 4
        assert consumer.last_stable_offset(tp) == -1
        fetched = consumer.last_poll_timestamp(tp)
        assert fetched is not None
        assert before - 60_000 <= fetched <= time.time() * 1000 + 60_000
    async with AsyncKafkaConsumer(**options, isolation_level="read_committed") as consumer:
        consumer.assign([tp])
        await anext(consumer)
        assert consumer.last_stable_offset(tp) == 4


async def test_nothing_consumed_is_nothing_to_commit(
    cluster: Cluster, group: str, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(group_id=group, **options) as consumer:
        await consumer.commit()
        await consumer.commit({})
    assert cluster.committed(group) == {}


async def test_cancelled_block_commits_what_was_finished(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    with anyio.CancelScope() as scope:
        async with AsyncKafkaConsumer(tp.topic, group_id=group, **options) as consumer:
            async for record in consumer:
                if record.offset == 2:
                    scope.cancel()
                    await anyio.sleep_forever()
    assert cluster.committed(group)[tp].offset == 2


async def test_before_the_start_and_after_the_stop_calls_are_refused(
    topic: str, options: dict[str, Any]
) -> None:
    consumer = AsyncKafkaConsumer(topic, group_id="unused", **options)
    with pytest.raises(IllegalStateError, match="not started"):
        consumer.commit_async({TopicPartition(topic, 0): 1})
    async with consumer:
        pass
    for call in (consumer.poll, consumer.start, consumer.topics):
        with pytest.raises(ConsumerClosedError, match="Create a new one"):
            await call()
    with pytest.raises(ConsumerClosedError):
        aiter(consumer)
    await consumer.close()


async def test_the_timeout_of_iteration_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="consumer_timeout_ms"):
        AsyncKafkaConsumer(**options | {"consumer_timeout_ms": 1_000})


async def test_getone_waits_until_there_is_something(
    cluster: Cluster, topic: str, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(topic, **options) as consumer, anyio.create_task_group() as tasks:
        got: list[Any] = []

        async def get() -> None:
            got.append((await anext(consumer)).value)

        tasks.start_soon(get)
        await consumer.poll(150, partitions=[TopicPartition(topic, 1)])
        assert got == []
        cluster.produce(topic, [b"late"], partition=0)
        await cluster.wait_until_async(lambda: got)
    assert got == [b"late"]
