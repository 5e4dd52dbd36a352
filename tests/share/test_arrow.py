"""poll_arrow() of share consumers: rows with their locks."""

from __future__ import annotations

from typing import Any

import anyio
import pyarrow as pa
import pytest

from kohort import AsyncShareConsumer, ShareConsumer, TopicPartition
from kohort.broker.log import Marker
from kohort.testing import Cluster, MemoryCluster
from tests.share.test_consumer import BACKENDS, LOCK, TOPIC, TP, answering, consumer, on_cluster


async def rows(member: AsyncShareConsumer, count: int) -> list[dict[str, Any]]:
    """Poll until ``count`` rows have come."""
    found: list[dict[str, Any]] = []
    with anyio.fail_after(600):
        while len(found) < count:
            found += (await member.poll_arrow(timeout_ms=1_000)).to_pylist()
    return found


@BACKENDS
def test_rows_have_the_count_and_the_deadline(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            first, second = await rows(member, 2)
            assert (first["value"], first["offset"], first["delivery_count"]) == (b"a", 0, 1)
            assert first["lock_deadline"] - anyio.current_time() == pytest.approx(LOCK, abs=2)
            member.acknowledge(TP, first["offset"])
            member.acknowledge(TP, second["offset"], "release")
            assert await member.commit() == {}
            (again,) = await rows(member, 1)
            assert (again["value"], again["delivery_count"]) == (b"b", 2)
            empty = await member.poll_arrow(timeout_ms=1_000)
            assert empty.num_rows == 0
            assert empty.schema.field("delivery_count").type == pa.int32()
            assert empty.schema.field("lock_deadline").type == pa.float64()

    on_cluster(backend, scene)


@BACKENDS
def test_rows_of_other_members_are_left_out(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, [f"{number}" for number in range(6)])
        exact = {"acquire_mode": "record_limit", "max_poll_records": 2}
        async with consumer(cluster, **exact) as one, consumer(cluster, **exact) as other:
            assert [each["offset"] for each in await rows(one, 2)] == [0, 1]
            assert [each["value"] for each in await rows(other, 2)] == [b"2", b"3"]
            assert one.held() == other.held() == 2

    on_cluster(backend, scene)


@BACKENDS
def test_a_later_poll_accepts_the_rows_in_implicit_mode(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster, acknowledgement="implicit") as member:
            assert len(await rows(member, 2)) == 2
            assert await member.commit() == {}
            cluster.produce(TOPIC, ["c"])
            assert len(await rows(member, 1)) == 1
            assert await member.poll(timeout_ms=1_000) == {}
        state = cluster.share_state("workers")
        assert state[TP].start == 3

    on_cluster(backend, scene)


@BACKENDS
def test_rows_without_room_come_with_the_next_poll(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        for _ in range(3):
            cluster.produce(TOPIC, [b"x" * 700_000] * 5)
        async with consumer(cluster) as member:
            batches: list[pa.RecordBatch] = []
            with anyio.fail_after(600):
                while sum(each.num_rows for each in batches) < 15:
                    batches.append(await member.poll_arrow(timeout_ms=1_000))
            sizes = [each.num_rows for each in batches if each.num_rows]
            assert sizes == [5, 5, 5]
            assert member.held() == 15
            table = pa.Table.from_batches(batches)
            assert table["offset"].to_pylist() == [*range(15)]
            assert set(table["delivery_count"].to_pylist()) == {1}

    on_cluster(backend, scene)


@BACKENDS
def test_markers_have_no_rows_and_are_acknowledged(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        cluster._read(_write_marker)
        cluster.produce(TOPIC, ["b"])
        async with consumer(cluster) as member:
            assert [each["offset"] for each in await rows(member, 2)] == [0, 2]
            for offset in (0, 2):
                member.acknowledge(TP, offset)
            assert await member.commit() == {}
        assert cluster.share_state("workers")[TP].start == 3

    on_cluster(backend, scene)


def _write_marker(state: Any) -> None:
    partition = state.topics.partition(*TP)
    assert partition is not None
    marker = Marker(7, 0, committed=True, coordinator_epoch=0)
    state.transaction_router.write_marker(partition, marker)


@BACKENDS
def test_damaged_batches_are_rejected_beside_rows(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        cluster.produce(TOPIC, ["b", "c"])
        cluster.produce(TOPIC, ["d"])
        cluster.corrupt(TP, 1)
        async with consumer(cluster) as member:
            assert [each["value"] for each in await rows(member, 2)] == [b"a", b"d"]
            assert await member.commit() == {}
            assert member.held() == 2

    on_cluster(backend, scene)


@BACKENDS
def test_rows_beside_an_on_error_that_raises_wait_for_the_next_poll(backend: str) -> None:
    on_error = answering(OSError("no disk"), "reject")

    async def scene(cluster: MemoryCluster) -> None:
        for value in ("a", "b", "c"):
            cluster.produce(TOPIC, [value])
        cluster.corrupt(TP, 1)
        async with consumer(cluster, on_error=on_error) as member:
            with pytest.raises(OSError, match="no disk"):
                await rows(member, 2)
            assert [each["value"] for each in await rows(member, 2)] == [b"a", b"c"]
            assert await member.commit() == {}
            assert member.held() == 2

    on_cluster(backend, scene)


def test_a_thread_gets_rows_and_a_warning_of_its_deserializer() -> None:
    with Cluster(topics={TOPIC: 1}) as cluster:
        cluster.produce(TOPIC, ["1"])
        with ShareConsumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
            value_deserializer=int,
        ) as member:
            with pytest.warns(UserWarning, match="do not call the value_deserializer"):
                batch = member.poll_arrow(timeout_ms=5_000)
            while not batch.num_rows:
                batch = member.poll_arrow(timeout_ms=5_000)
            assert batch["value"].to_pylist() == [b"1"]
            assert member.commit() == {}
            assert cluster.share_state("workers")[TopicPartition(TOPIC, 0)].start == 1
