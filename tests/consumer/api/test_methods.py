"""Methods of KafkaConsumer and AsyncKafkaConsumer, in one text for both."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kohort import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kohort.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NotAssignedError,
)
from kohort.testing import Cluster, ProducerRecord
from kohort.types import ConsumerGroupMetadata
from tests.consumer.kit import PATIENCE, aread, committed, values
from tests.support.awaited import EACH_API

pytestmark = pytest.mark.anyio

LONG_MS = 1000 * PATIENCE
VALUES = [b"%d" % n for n in range(10)]


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    """A partition with ten records."""
    cluster.produce(topic, VALUES, partition=0)
    return TopicPartition(topic, 0)


@EACH_API
async def test_properties_of_other_clients_make_a_consumer(
    cluster: Cluster, tp: TopicPartition, group: str, consumer_class: Any
) -> None:
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    made = consumer_class.from_properties(properties, tp.topic, value_deserializer=int)
    async with made as consumer:
        assert values(await aread(consumer, 10)) == list(range(10))
    assert committed(cluster, group, tp) == 10


@EACH_API
async def test_poll_returns_records_by_partition(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    options |= {"value_deserializer": bytes.decode, "max_poll_records": 4}
    async with consumer_class(tp.topic, **options) as consumer:
        polled = await consumer.poll(timeout_ms=LONG_MS, max_records=3)
        assert polled.keys() == {tp}
        assert [(r.offset, r.value) for r in polled[tp]] == [(0, "0"), (1, "1"), (2, "2")]
        sizes = [len((await consumer.poll(timeout_ms=LONG_MS))[tp]) for _ in range(2)]
        assert sizes == [4, 3]
        assert await consumer.poll() == {}
        wrong: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"timeout_ms": -1}, ValueError),
            ({"timeout_ms": math.nan}, ValueError),
            ({"timeout_ms": "1"}, TypeError),
            ({"max_records": 0}, ValueError),
            ({"max_records": "1"}, TypeError),
            ({"max_records": 1.5}, TypeError),
            ({"max_records": True}, TypeError),
        ]
        for arguments, error in wrong:
            with pytest.raises(error):
                await consumer.poll(**arguments)


@EACH_API
async def test_a_subscription_without_a_group_is_all_partitions(
    cluster: Cluster, tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    other = TopicPartition(tp.topic, 1)
    cluster.produce(tp.topic, [b"x"], partition=1)
    async with consumer_class(tp.topic, **options) as consumer:
        assert sorted(values(await aread(consumer, 11))) == [*VALUES, b"x"]
        assert consumer.assignment() == {tp, other}
        assert consumer.group_metadata() == ConsumerGroupMetadata()
        for call in (consumer.commit, consumer.seek_to_committed):
            with pytest.raises(IllegalStateError, match="group_id"):
                await call()
        with pytest.raises(IllegalStateError, match="group_id"):
            consumer.commit_async()
        with pytest.raises(IllegalStateError, match="group_id"):
            await consumer.committed(tp)


@EACH_API
async def test_what_the_cluster_knows_can_be_asked(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    consumer = consumer_class(tp.topic, **options)
    assert consumer.bootstrap_connected() is False
    async with consumer:
        assert await consumer.bootstrap() is None
        await consumer.bootstrap(timeout_ms=5_000, refresh=True)
        assert consumer.bootstrap_connected() is True
        assert tp.topic in await consumer.topics()
        assert await consumer.partitions_for_topic(tp.topic) == {0, 1}
        assert consumer.known_partitions(tp.topic) == {0, 1}
        assert await consumer.partitions_for_topic("nobody-made-this") == set()
        assert consumer.known_partitions("nobody-made-this") is None
        assert (await consumer.topic_ids([tp.topic, "nobody-made-this"])).keys() == {tp.topic}
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 10}
        assert consumer.metrics() is not None
    assert consumer.bootstrap_connected() is False


@EACH_API
async def test_a_seek_decides_what_comes_next(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    consumer = consumer_class(**options)
    consumer.assign([tp])
    consumer.seek(tp, 2)  # before the start
    async with consumer:
        assert consumer.assignment() == {tp}
        assert consumer.subscription() == set()
        assert await consumer.position(tp) == 2
        assert values(await aread(consumer, 8)) == VALUES[2:]
        consumer.seek(tp, 1)
        assert values(await aread(consumer, 9)) == VALUES[1:]
        consumer.seek_to_end()
        assert await consumer.position(tp) == 10
        consumer.seek_to_beginning(tp)
        assert await consumer.position(tp) == 0
        assert values(await aread(consumer, 10)) == VALUES


@EACH_API
async def test_the_methods_of_a_partition_need_its_assignment(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    other = TopicPartition(tp.topic, 1)
    async with consumer_class(**options) as consumer:
        consumer.assign([tp])
        for call in (consumer.highwater, consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(NotAssignedError):
                call(other)
        with pytest.raises(NotAssignedError):
            consumer.seek(other, 0)
        with pytest.raises(NotAssignedError):
            await consumer.position(other)
        for seek in (consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(TypeError):
                seek([tp])
        with pytest.raises(IllegalStateError):
            consumer.subscribe([tp.topic])


@EACH_API
async def test_iteration_moves_the_position_with_each_record(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    async with consumer_class(tp.topic, **options) as consumer:
        assert (await anext(consumer)).offset == 0
        assert await consumer.position(tp) == 1
        async for record in consumer:
            assert await consumer.position(tp) == record.offset + 1
            if record.value == VALUES[-1]:
                break


@EACH_API
async def test_a_pause_between_two_steps_of_iteration_counts(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    async with consumer_class(tp.topic, **options) as consumer:
        assert (await anext(consumer)).value == b"0"
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.poll(timeout_ms=100) == {}
        consumer.resume(tp)
        assert consumer.paused() == set()
        assert [(await anext(consumer)).value for _ in range(3)] == VALUES[1:4]
        assert values(await aread(consumer, 6)) == VALUES[4:]


@EACH_API
async def test_offsets_are_found_by_end_and_by_time(
    cluster: Cluster, topic: str, options: dict[str, Any], consumer_class: Any
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    records = [ProducerRecord(b"x", timestamp=stamp, partition=0) for stamp in (1000, 2000, 3000)]
    cluster.produce(topic, records)
    async with consumer_class(**options) as consumer:
        assert await consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
        assert await consumer.end_offsets([first, second], timeout_ms=5_000) == {
            first: 3,
            second: 0,
        }
        asked = {first: 1500, second: 1500}
        found = await consumer.offsets_for_times(asked)
        assert found == {first: OffsetAndTimestamp(1, 2000, 0), second: None}
        assert asked == {first: 1500, second: 1500}
        with pytest.raises(ValueError, match="at least 0"):
            await consumer.offsets_for_times({first: -5})
        for value in ("1500", None, True, math.nan, [1500]):
            with pytest.raises(TypeError, match=r"the timestamp of .* must be an int"):
                await consumer.offsets_for_times({first: value})
        assert (await consumer.offsets_for_times({first: 1500.0}))[first] is not None
        with cluster.network_partition(), pytest.raises(KafkaTimeoutError):
            await consumer.end_offsets([first], timeout_ms=50)


@EACH_API
async def test_position_and_reads_raise_without_offset_and_rule(
    tp: TopicPartition, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    options["auto_offset_reset"] = "none"
    async with consumer_class(group_id=group, **options) as consumer:
        consumer.assign([tp])
        with pytest.raises(NoOffsetForPartitionError, match="seek"):
            await consumer.position(tp)
        with pytest.raises(NoOffsetForPartitionError, match="seek"):
            await consumer.poll(timeout_ms=5_000)
        with pytest.raises(NoOffsetForPartitionError, match="seek"):
            await anext(consumer)
        consumer.seek(tp, 8)
        assert (await anext(consumer)).value == b"8"
        assert values(await aread(consumer, 1)) == [b"9"]


@EACH_API
async def test_commit_stores_the_positions(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    def lookups() -> int:
        return sum(request.api == "OffsetFetch" for request in cluster.requests)

    other = TopicPartition(tp.topic, 1)
    options["enable_auto_commit"] = False
    async with consumer_class(tp.topic, group_id=group, **options) as consumer:
        assert await consumer.committed(tp) is None
        await aread(consumer, 10)
        await consumer.commit()
        assert committed(cluster, group, tp) == 10
        assert await consumer.committed(tp) == 10
        assert await consumer.committed(tp, metadata=True) == OffsetAndMetadata(10, "", 0)
        before = lookups()
        assert (await consumer.committed([tp, other])).keys() == {tp, other}
        assert await consumer.committed({tp}) == {tp: 10}
        several = await consumer.committed((tp,), metadata=True)
        assert several == {tp: OffsetAndMetadata(10, "", 0)}
        assert lookups() == before + 3
        assert await consumer.committed([]) == {}
        for nonsense in ("t", 3, None, [3]):
            with pytest.raises(TypeError):
                await consumer.committed(nonsense)
        await consumer.commit({tp: (2, "note")})
        assert cluster.committed(group)[tp] == OffsetAndMetadata(2, "note", 0)
        with pytest.raises(CommitFailedError, match="not assigned"):
            await consumer.commit({TopicPartition("elsewhere", 0): 1})
        assert await consumer.seek_to_committed(tp) == {tp: 2}
        assert values(await aread(consumer, 8)) == VALUES[2:]
        consumer.seek(tp, 0)
        assert await consumer.seek_to_committed() == {tp: 2, other: 0}


@EACH_API
async def test_iteration_commits_what_is_done_with_record_by_record(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    options |= {"group_id": group, "auto_commit_interval_ms": 10}
    async with consumer_class(tp.topic, **options) as consumer:
        for expected in range(4):
            assert (await anext(consumer)).offset == expected
        await cluster.wait_until_async(lambda: committed(cluster, group, tp) == 3)
        await aread(consumer, 6)
        assert committed(cluster, group, tp) in (3, 4)
    assert committed(cluster, group, tp) == 10


@EACH_API
@pytest.mark.parametrize("stopped", [False, True])
async def test_replacing_an_assignment_commits_the_old_one(
    cluster: Cluster,
    tp: TopicPartition,
    group: str,
    options: dict[str, Any],
    consumer_class: Any,
    stopped: bool,
) -> None:
    consumer = consumer_class(group_id=group, **options)
    consumer.assign([tp])
    async with consumer:
        await aread(consumer, 10)
        consumer.assign([TopicPartition(tp.topic, 1)])
        if not stopped:
            await cluster.wait_until_async(lambda: committed(cluster, group, tp) == 10)
    assert committed(cluster, group, tp) == 10


@EACH_API
async def test_close_without_autocommit_and_failed_block_do_not_commit(
    cluster: Cluster, tp: TopicPartition, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    options["group_id"] = group
    async with consumer_class(tp.topic, **options) as consumer:
        await aread(consumer, 10)
        await consumer.close(autocommit=False)
    assert committed(cluster, group, tp) is None
    with pytest.raises(ZeroDivisionError):
        async with consumer_class(tp.topic, **options) as consumer:
            await aread(consumer, 10)
            raise ZeroDivisionError
    assert committed(cluster, group, tp) in (None, 0)
    assert not cluster.group(group).members
    async with consumer_class(tp.topic, **options) as consumer:
        await aread(consumer, 10)
    assert committed(cluster, group, tp) == 10


@EACH_API
@pytest.mark.parametrize(("subscribed", "poll"), [(True, "poll"), (False, "poll_batches")])
async def test_block_that_raises_commits_what_was_finished(
    cluster: Cluster,
    tp: TopicPartition,
    group: str,
    options: dict[str, Any],
    consumer_class: Any,
    subscribed: bool,
    poll: str,
) -> None:
    consumer = consumer_class(group_id=group, **options)
    if subscribed:
        consumer.subscribe([tp.topic])
    else:
        consumer.assign([tp])
    with pytest.raises(ZeroDivisionError):
        async with consumer:
            while consumer.positions().get(tp) != 8:
                await getattr(consumer, poll)(timeout_ms=1000, max_records=4)
            raise ZeroDivisionError
    assert committed(cluster, group, tp) == 4
    assert not cluster.group(group).members


@EACH_API
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
async def test_iteration_that_raises_commits_what_was_finished(
    cluster: Cluster,
    tp: TopicPartition,
    group: str,
    options: dict[str, Any],
    consumer_class: Any,
    error: type[BaseException],
) -> None:
    with pytest.raises(error):
        async with consumer_class(tp.topic, group_id=group, **options) as consumer:
            async for record in consumer:
                if record.offset == 7:
                    raise error
    assert committed(cluster, group, tp) == 7
    assert not cluster.group(group).members
