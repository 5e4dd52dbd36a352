"""The methods of AsyncKafkaConsumer, each at least once, with the shapes they return."""

from __future__ import annotations

import math
import time
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.errors import (
    CommitFailedError,
    ConfigurationError,
    ConsumerClosedError,
    IllegalStateError,
    NoOffsetForPartitionError,
    NotAssignedError,
)
from kohort.testing import Cluster, ProducerRecord
from tests.consumer.kit import aread, values

pytestmark = pytest.mark.anyio

LETTERS = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    """A partition with four records."""
    cluster.produce(topic, LETTERS, partition=0)
    return TopicPartition(topic, 0)


async def test_getmany_returns_records_by_partition(
    tp: TopicPartition, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(tp.topic, **options) as consumer:
        polled = await consumer.poll(timeout_ms=10_000, max_records=3)
        assert values(polled[tp]) == LETTERS[:3]
        assert values((await consumer.poll(timeout_ms=10_000))[tp]) == LETTERS[3:]
        assert await consumer.poll() == {}
        for arguments, error in [
            ({"timeout_ms": -1}, ValueError),
            ({"timeout_ms": math.nan}, ValueError),
            ({"max_records": 0}, ValueError),
            ({"max_records": "1"}, TypeError),
        ]:
            with pytest.raises(error):
                await consumer.poll(**arguments)  # type: ignore[arg-type]


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


async def test_getone_and_iteration_move_the_position_with_each_record(
    tp: TopicPartition, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(tp.topic, **options) as consumer:
        assert (await anext(consumer)).offset == 0
        assert await consumer.position(tp) == 1
        async for record in consumer:
            assert await consumer.position(tp) == record.offset + 1
            if record.offset == 3:
                break


async def test_assign_and_seek(tp: TopicPartition, options: dict[str, Any]) -> None:
    consumer = AsyncKafkaConsumer(**options)
    consumer.assign([tp])
    consumer.seek(tp, 2)  # before the start
    async with consumer:
        assert consumer.assignment() == {tp}
        assert consumer.subscription() == set()
        assert values(await aread(consumer, 2)) == LETTERS[2:]
        consumer.seek_to_beginning(tp)
        assert await consumer.position(tp) == 0
        consumer.seek_to_end()
        assert await consumer.position(tp) == 4
        consumer.seek(tp, 3)
        assert values(await aread(consumer, 1)) == LETTERS[3:]
        other = TopicPartition(tp.topic, 1)
        with pytest.raises(NotAssignedError):
            consumer.seek(other, 0)
        with pytest.raises(NotAssignedError):
            await consumer.position(other)
        with pytest.raises(NotAssignedError):
            consumer.seek_to_end(other)
        with pytest.raises(NotAssignedError):
            consumer.highwater(other)
        with pytest.raises(IllegalStateError):
            consumer.subscribe([tp.topic])


async def test_pause_and_resume(tp: TopicPartition, options: dict[str, Any]) -> None:
    async with AsyncKafkaConsumer(tp.topic, **options) as consumer:
        assert (await anext(consumer)).value == b"a"
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.poll(timeout_ms=100) == {}
        consumer.resume(tp)
        assert consumer.paused() == set()
        assert values(await aread(consumer, 3)) == LETTERS[1:]


async def test_what_the_cluster_knows_can_be_asked(
    cluster: Cluster, tp: TopicPartition, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(tp.topic, **options) as consumer:
        assert tp.topic in await consumer.topics()
        assert await consumer.partitions_for_topic(tp.topic) == {0, 1}
        assert consumer.known_partitions(tp.topic) == {0, 1}
        assert await consumer.partitions_for_topic("nobody-made-this") == set()
        assert consumer.known_partitions("nobody-made-this") is None
        assert (await consumer.topic_ids([tp.topic, "nobody-made-this"])).keys() == {tp.topic}
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 4}
        assert consumer.metrics() is not None


async def test_offsets_are_found_by_time(
    cluster: Cluster, topic: str, options: dict[str, Any]
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    records = [ProducerRecord(b"x", timestamp=stamp, partition=0) for stamp in (1000, 2000)]
    cluster.produce(topic, records)
    async with AsyncKafkaConsumer(**options) as consumer:
        found = await consumer.offsets_for_times({first: 1500, second: 1500})
        assert found == {first: OffsetAndTimestamp(1, 2000, 0), second: None}
        with pytest.raises(ValueError, match="at least 0"):
            await consumer.offsets_for_times({first: -1})


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
        assert before - 100 <= fetched <= time.time() * 1000 + 100
    async with AsyncKafkaConsumer(**options, isolation_level="read_committed") as consumer:
        consumer.assign([tp])
        await anext(consumer)
        assert consumer.last_stable_offset(tp) == 4


async def test_commits(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(
        tp.topic, group_id=group, enable_auto_commit=False, **options
    ) as consumer:
        assert await consumer.committed(tp) is None
        await aread(consumer, 4)
        await consumer.commit()
        assert await consumer.committed(tp) == 4
        assert (await consumer.committed([tp]))[tp] == 4
        assert await consumer.committed(tp, metadata=True) == OffsetAndMetadata(4, "", 0)
        several = await consumer.committed([tp], metadata=True)
        assert several == {tp: OffsetAndMetadata(4, "", 0)}
        await consumer.commit({tp: (2, "note")})
        assert cluster.committed(group)[tp] == OffsetAndMetadata(2, "note", 0)
        with pytest.raises(CommitFailedError, match="not assigned"):
            await consumer.commit({TopicPartition("elsewhere", 0): 1})
        assert await consumer.seek_to_committed(tp) == {tp: 2}
        assert values(await aread(consumer, 2)) == LETTERS[2:]
        consumer.seek(tp, 0)
        assert await consumer.seek_to_committed() == {tp: 2, TopicPartition(tp.topic, 1): 0}


async def test_what_needs_a_group_says_so(tp: TopicPartition, options: dict[str, Any]) -> None:
    async with AsyncKafkaConsumer(**options) as consumer:
        consumer.assign([tp])
        for call in (consumer.commit, consumer.seek_to_committed):
            with pytest.raises(IllegalStateError, match="group_id"):
                await call()
        with pytest.raises(IllegalStateError, match="group_id"):
            await consumer.committed(tp)


async def test_nothing_consumed_is_nothing_to_commit(
    cluster: Cluster, group: str, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(group_id=group, **options) as consumer:
        await consumer.commit()
        await consumer.commit({})
    assert cluster.committed(group) == {}


async def test_without_offset_and_rule_position_says_so(
    tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    options["auto_offset_reset"] = "none"
    async with AsyncKafkaConsumer(group_id=group, **options) as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.position(tp)
        with pytest.raises(NoOffsetForPartitionError):
            await anext(consumer)
        consumer.seek(tp, 3)
        assert (await anext(consumer)).value == b"d"


async def test_automatic_commits(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    def committed() -> int | None:
        at = cluster.committed(group).get(tp)
        return None if at is None else at.offset

    interval: dict[str, Any] = {"auto_commit_interval_ms": 10, "group_id": group}
    async with AsyncKafkaConsumer(tp.topic, **interval, **options) as consumer:
        await anext(consumer)
        await anext(consumer)
        await cluster.wait_until_async(lambda: committed() == 1)
        await aread(consumer, 2)
        assert committed() == 1 or committed() == 2
    assert committed() == 4


@pytest.mark.parametrize("stopped", [False, True])
async def test_replacing_an_assignment_commits_the_old_one(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any], stopped: bool
) -> None:
    consumer = AsyncKafkaConsumer(group_id=group, **options)
    consumer.assign([tp])
    async with consumer:
        await aread(consumer, 4)
        consumer.assign([TopicPartition(tp.topic, 1)])
        if not stopped:
            await cluster.wait_until_async(lambda: tp in cluster.committed(group))
    assert cluster.committed(group)[tp].offset == 4


async def test_a_body_that_raises_does_not_commit(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with AsyncKafkaConsumer(tp.topic, group_id=group, **options) as consumer:
            await aread(consumer, 4)
            raise ZeroDivisionError
    assert tp not in cluster.committed(group) or cluster.committed(group)[tp].offset == 0
    assert not cluster.group(group).members


async def test_block_that_raises_commits_what_was_finished(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with AsyncKafkaConsumer(tp.topic, group_id=group, **options) as consumer:
            while consumer.positions().get(tp) != 2:
                await consumer.poll(timeout_ms=1000, max_records=1)
            raise ZeroDivisionError
    assert cluster.committed(group)[tp].offset == 1
    assert not cluster.group(group).members


async def test_iteration_that_raises_commits_what_was_finished(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with AsyncKafkaConsumer(tp.topic, group_id=group, **options) as consumer:
            async for record in consumer:
                if record.offset == 3:
                    raise ZeroDivisionError
    assert cluster.committed(group)[tp].offset == 3


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


async def test_properties_of_other_clients_make_a_consumer(
    cluster: Cluster, tp: TopicPartition
) -> None:
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "auto.offset.reset": "earliest",
    }
    made = AsyncKafkaConsumer.from_properties(properties, tp.topic, value_deserializer=bytes.decode)
    async with made as consumer:
        assert values(await aread(consumer, 4)) == ["a", "b", "c", "d"]


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
