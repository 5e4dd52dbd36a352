"""Fetches of a part of the partitions while responses are full, on a virtual clock."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.fetcher._connections import NodeConnections
from kohort.fetcher._working_set import WORTHWHILE, WorkingSet
from kohort.protocol.messages import FetchRequest
from kohort.testing import Call, MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual

PARTITIONS = 200
SIZE = 1000
SMALL: dict[str, Any] = {
    "group_id": None,
    "max_partition_fetch_bytes": SIZE,
    "fetch_max_bytes": 4 * SIZE,
    "max_poll_records": 50,
}
"""Options with which four partitions fill a response."""


def all_partitions() -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(PARTITIONS)]


def fill(cluster: MemoryCluster, partition: int, batches: int) -> None:
    for number in range(batches):
        cluster.produce("t", [b"%d" % number + b"x" * 800], partition=partition)


def fetches(cluster: MemoryCluster) -> list[FetchRequest]:
    return [each.message for each in cluster.requests if isinstance(each.message, FetchRequest)]


def named(request: FetchRequest) -> list[int]:
    return [each.partition for topic in request.topics for each in topic.partitions]


async def read(consumer: MemoryConsumer, count: int) -> dict[int, list[int]]:
    """Return the offsets of the next records by partition."""
    offsets: dict[int, list[int]] = defaultdict(list)
    while count > 0:
        polled = await consumer.poll(timeout_ms=10_000)
        assert polled, "records are missing"
        for tp, records in polled.items():
            offsets[tp.partition] += [record.offset for record in records]
            count -= len(records)
    return offsets


def test_backlog_is_read_in_turns_and_the_session_is_kept() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": PARTITIONS}) as cluster:
            for partition in range(PARTITIONS):
                fill(cluster, partition, 6)
            async with MemoryConsumer(cluster, **SMALL) as consumer:
                consumer.assign(all_partitions())
                offsets = await read(consumer, 6 * PARTITIONS)
                assert all(offsets[each] == list(range(6)) for each in range(PARTITIONS))
                sent = fetches(cluster)
                parts = [each for each in sent if each.session_epoch == -1]
                whole = [each for each in sent if each.session_epoch != -1]
                assert len(parts) > 5 * len(whole)
                assert all(len(named(each)) <= PARTITIONS / 2 for each in parts)
                assert sum(len(named(each)) for each in parts) < 12 * len(parts)
                assert all(each.max_wait_ms == 0 for each in parts)
                fill(cluster, 7, 1)
                assert await read(consumer, 1) == {7: [6]}
                await consumer.poll(timeout_ms=1_000)
                assert all(each.session_id and each.session_epoch for each in fetches(cluster)[-2:])

    run_virtual(main)


def test_every_partition_has_its_turn_while_there_is_a_backlog() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": PARTITIONS}) as cluster:
            for partition in range(PARTITIONS):
                fill(cluster, partition, 5)
            async with MemoryConsumer(cluster, **SMALL) as consumer:
                consumer.assign(all_partitions())
                await read(consumer, 3 * PARTITIONS)
                latest = dict.fromkeys(range(PARTITIONS), 0)
                longest = 0
                for at, request in enumerate(fetches(cluster)):
                    for partition in named(request):
                        longest = max(longest, at - latest[partition])
                        latest[partition] = at
                assert longest <= PARTITIONS / 2
                facts = consumer.explain().as_dict()["partitions"].values()
                assert all(part["last_fetch_seconds_ago"] is not None for part in facts)

    run_virtual(main)


async def take_time(call: Call) -> Any:
    """Respond after 1 ms, and 10 us for each partition that the broker looks at."""
    request = call.message
    assert isinstance(request, FetchRequest)
    in_session = request.session_id and request.session_epoch
    await anyio.sleep(0.001 + 1e-5 * (PARTITIONS if in_session else len(named(request))))
    return await call.proceed()


def trickle_beside_backlogs(*, working_sets: bool) -> tuple[list[float], float]:
    """Return the seconds until each record of ten partitions came, and those of the backlog.

    One partition has a backlog that is 100 times that of the others.
    """
    waits: list[float] = []
    left, seconds = 8 * (PARTITIONS - 11), 0.0

    async def main() -> None:
        nonlocal left, seconds
        numbers, ends = random.Random(3), dict.fromkeys(range(1, 11), 0)
        produced: dict[tuple[int, int], float] = {}
        async with MemoryCluster(topics={"t": PARTITIONS}) as cluster:
            fill(cluster, 0, 800)
            for partition in range(11, PARTITIONS):
                fill(cluster, partition, 8)
            async with MemoryConsumer(cluster, **SMALL) as consumer:
                consumer.assign(all_partitions())
                with cluster.on("Fetch", take_time):
                    while left:
                        if numbers.random() < 0.3:
                            partition = numbers.randint(1, 10)
                            produced[partition, ends[partition]] = anyio.current_time()
                            cluster.produce("t", [b"x"], partition=partition)
                            ends[partition] += 1
                        for tp, records in (await consumer.poll(timeout_ms=5)).items():
                            left -= len(records) if tp.partition > 10 else 0
                            places = [(tp.partition, record.offset) for record in records]
                            times = [produced.pop(each) for each in places if each in produced]
                            waits.extend(anyio.current_time() - at for at in times)
                    seconds = anyio.current_time()

    with pytest.MonkeyPatch.context() as patch:
        if not working_sets:
            patch.setattr(WorkingSet, "size", lambda self, candidates: 0)
        run_virtual(main)
    return sorted(waits), seconds


def test_working_sets_are_faster_and_let_no_partition_starve() -> None:
    (before, seconds_before), (after, seconds_after) = (
        trickle_beside_backlogs(working_sets=each) for each in (False, True)
    )
    assert min(len(before), len(after)) > 100
    assert after[len(after) * 99 // 100] <= 1.2 * before[len(before) * 99 // 100]
    assert 2 * seconds_after < seconds_before


def test_seek_in_a_backlog_loses_and_repeats_no_record() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": PARTITIONS}) as cluster:
            for partition in range(PARTITIONS):
                fill(cluster, partition, 4)
            numbers = random.Random(5)
            async with MemoryConsumer(cluster, **SMALL) as consumer:
                consumer.assign(all_partitions())
                expected = dict.fromkeys(all_partitions(), 0)
                while any(offset < 4 for offset in expected.values()):
                    for tp, records in (await consumer.poll(timeout_ms=10_000)).items():
                        for record in records:
                            assert record.offset == expected[tp]
                            expected[tp] += 1
                    tp = numbers.choice(all_partitions())
                    match numbers.randrange(40):
                        case 0:
                            expected[tp] = numbers.randrange(4)
                            consumer.seek(tp, expected[tp])
                        case 1:
                            consumer.pause(tp)
                            await anyio.sleep(0.01)
                            consumer.resume(tp)
                        case 2:
                            part = numbers.sample(all_partitions(), PARTITIONS // 2)
                            consumer.assign(part)
                            consumer.assign(all_partitions())
                            for each in all_partitions():
                                consumer.seek(each, expected[each])

    run_virtual(main)


def test_working_set_fits_two_full_responses() -> None:
    working_set = WorkingSet()
    assert working_set.size(1000) == 0
    working_set.note_session(4, 8)
    assert working_set.size(1000) == 8
    working_set.note_response(20, 8, is_full=True)
    assert working_set.size(1000) == 40
    working_set.note_response(3, 8, is_full=True)
    assert working_set.size(1000) == 8
    assert working_set.size(15) == 0


def test_working_sets_that_are_not_full_are_tried_less_often() -> None:
    working_set, waits = WorkingSet(), []
    for _ in range(5):
        waits.append(0)
        while not working_set.size(100):
            working_set.note_session(4, 8)
            waits[-1] += 1
        while working_set.size(100):
            working_set.note_response(8, 8, is_full=False)
    assert waits == [1, 2, 3, 5, 9]
    while not working_set.size(100):
        working_set.note_session(4, 8)
    for _ in range(WORTHWHILE):
        working_set.note_response(4, 8, is_full=True)
    assert not working_set.size(10)
    working_set.note_session(4, 8)
    assert working_set.size(100)


def test_connection_begins_with_the_session_of_all() -> None:
    main = NodeConnections(1).main
    assert main.session is main.session_of_all
    assert not main.has_working_set
