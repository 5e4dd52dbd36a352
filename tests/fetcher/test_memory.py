"""The limit ``buffer_memory`` over all partitions, without starving any of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.fetcher.buffer._completed import CompletedFetch
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.subscription import Watermarks
from kohort.types import TopicPartition
from tests.fetcher.bench import Bench
from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import T0, T1, T2, CountedLease, batch, broken, owning

BATCH = len(batch(0, 10))


class TestGrants:
    def test_remaining_memory_is_shared_and_one_partition_is_assured(self) -> None:
        memory = FetchMemory(100)
        assert memory.grant([10, 10], 50, 2) == (20, 50)
        assert memory.grant([30, 30], 50, 2) == (40, 40)
        assert memory.grant([30, 30], 50, 1) == (40, 40)
        assert memory.grant([30, 30], 50, 1) == (30, 30)
        assert memory.in_flight_bytes == 130

    def test_an_answer_counts_until_it_is_released(self) -> None:
        memory, lease = FetchMemory(100), CountedLease()
        granted = memory.grant([70], 500, 1)
        held = memory.count(lease, 110)
        memory.release_grant(granted)
        assert (memory.in_flight_bytes, memory.pooled_bytes, memory.is_full) == (0, 110, True)
        held.release()
        assert (memory.pooled_bytes, memory.is_full, lease.released) == (0, False, 1)


def bench_of(*partitions: TopicPartition, limit: int) -> Bench:
    return Bench(*partitions, buffered={"memory": FetchMemory(limit)})


def put(bench: Bench, tp: TopicPartition, offset: int, *data: bytes) -> CompletedFetch:
    """Add a response with one partition in it."""
    lease: Any = bench.buffer.queues.limits.memory.count(CountedLease(), sum(map(len, data)))
    return bench.put(tp, offset, *data, lease=lease)


class TestRoom:
    def test_nothing_more_is_fetched_until_something_is_taken(self) -> None:
        bench = bench_of(T0, T1, T2, limit=BATCH)
        put(bench, T0, 0, batch(0, 10))
        assert bench.with_room() == set()
        assert bench.drain(9) == {T0: list(range(9))}
        assert bench.with_room() == set()
        assert bench.drain() == {T0: [9]}
        assert bench.rooms == 1
        assert bench.with_room() == {T0, T1, T2}

    def test_paused_partitions_keep_half_and_leave_others_the_rest(self) -> None:
        both = BATCH + len(batch(10, 10))
        bench = bench_of(T0, T1, T2, limit=2 * both)
        for tp in (T0, T1):
            put(bench, tp, 0, batch(0, 10))
            put(bench, tp, 10, batch(10, 10))
        bench.drain(1)
        assert bench.with_room() == set()
        bench.subscription.pause([T0, T1])
        assert bench.with_room() == {T2}
        assert bench.buffer.queues.limits.memory.used == both
        bench.subscription.resume([T0, T1])
        targets = bench.subscription.fetch_targets()
        positions = {target.topic_partition: target.offset for target in targets}
        refetched = next(tp for tp in (T0, T1) if positions[tp] < 20)
        kept = T1 if refetched == T0 else T0
        assert positions[refetched] == bench.position(refetched)
        assert len(bench.drain()[kept]) >= 19
        data = [batch(10, 10)] if positions[refetched] == 10 else [batch(0, 10), batch(10, 10)]
        put(bench, refetched, positions[refetched], *data)
        assert bench.drain()[refetched][-1] == 19

    def test_unrequested_partitions_do_not_starve_requested_ones(self) -> None:
        bench = bench_of(T0, T1, T2, limit=2 * BATCH)
        put(bench, T0, 0, batch(0, 10))
        put(bench, T1, 0, batch(0, 10))
        assert bench.with_room() == set()
        assert bench.drain(partitions=[T2]) == {}
        assert bench.rooms == 1, "the fetcher gets a signal to fetch other partitions"
        assert bench.with_room() == {T2}
        put(bench, T2, 0, batch(0, 10))
        assert bench.drain(partitions=[T2]) == {T2: list(range(10))}
        assert bench.with_room() >= {T2}

    def test_what_an_error_holds_back_does_not_starve_the_others(self) -> None:
        bench = bench_of(T0, T1, limit=BATCH)
        put(bench, T0, 0, broken(batch(0, 10)))
        with pytest.raises(Exception, match="CRC"):
            bench.drain()
        assert bench.with_room() == {T1}

    def test_what_is_handed_out_is_not_waited_for(self) -> None:
        """Without this rule the readable partition would wait for a drain without records."""
        bench = bench_of(T0, T1, limit=BATCH)
        put(bench, T0, 0, broken(batch(0, 10)))
        with pytest.raises(Exception, match="CRC"):
            bench.drain()
        put(bench, T1, 0, batch(0, 10))
        assert bench.with_room() == set()
        assert bench.drain() == {T1: list(range(10))}
        assert bench.rooms == 1
        assert bench.with_room() == {T1}

    def test_what_was_sought_away_from_is_let_go(self) -> None:
        bench = bench_of(T0, limit=BATCH)
        put(bench, T0, 0, batch(0, 10))
        assert bench.with_room() == set()
        bench.subscription.seek(T0, 50)
        assert bench.with_room() == {T0}
        assert bench.buffer.queues.limits.memory.pooled_bytes == 0


PARTITIONS = [TopicPartition("t", number) for number in range(60)]


def sixty() -> FakeCluster:
    """Return sixty partitions on three brokers, ten batches of ten records each."""
    cluster = FakeCluster()
    for tp in PARTITIONS:
        log = cluster.add(tp, node=1 + tp.partition % 3)
        for first in range(0, 100, 10):
            log.append(first + 10, batch(first, 10))
    return cluster


async def settled() -> None:
    for _ in range(200):
        await anyio.lowlevel.checkpoint()


def check(consumer: Consumer, limit: int) -> None:
    memory = consumer.fetcher.buffer.queues.limits.memory
    assert memory.pooled_bytes <= limit
    assert consumer.fetcher.buffer.queues.bytes_buffered() <= limit


@pytest.mark.anyio
class TestFetching:
    OPTIONS = {
        "max_partition_fetch_bytes": 2 * BATCH,
        "fetch_max_bytes": 10 * BATCH,
        "buffer_memory": 20 * BATCH,
    }

    async def test_caller_that_does_not_poll_stays_within_the_limit(self) -> None:
        cluster = sixty()
        async with consuming(cluster, owning(*PARTITIONS), **self.OPTIONS) as consumer:
            await settled()
            # The rest is shared. Each broker may get a fetch for one partition in any case.
            check(consumer, (20 + 3 * 2) * BATCH)
            assert consumer.fetcher.buffer.queues.limits.memory.pooled_bytes >= 15 * BATCH
            sent = len(cluster.fetches)
            await settled()
            assert len(cluster.fetches) == sent
            assert consumer.fetcher.buffer.queues.limits.memory.in_flight_bytes == 0

    async def test_not_all_partitions_are_buffered_if_caller_has_plenty(self) -> None:
        cluster = sixty()
        options = self.OPTIONS | {
            "max_partition_fetch_bytes": 5 * BATCH,
            "buffer_memory": 1000 * BATCH,
        }
        async with consuming(cluster, owning(*PARTITIONS), **options) as consumer:
            seen: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}
            await settled()
            # Four responses, and one of each broker that had a fetch before these arrived.
            check(consumer, (4 + 3) * 10 * BATCH)
            sent = len(cluster.fetches)
            await settled()
            assert len(cluster.fetches) == sent
            with anyio.fail_after(60):
                while any(len(offsets) < 100 for offsets in seen.values()):
                    for tp, offsets in (await consumer.poll(limit=35)).items():
                        seen[tp] += offsets
                    check(consumer, (4 + 3) * 10 * BATCH)
            assert all(offsets == list(range(100)) for offsets in seen.values())

    async def test_and_all_of_it_comes_when_he_does(self) -> None:
        cluster = sixty()
        async with consuming(cluster, owning(*PARTITIONS), **self.OPTIONS) as consumer:
            seen: dict[TopicPartition, list[int]] = {tp: [] for tp in PARTITIONS}
            with anyio.fail_after(60):
                while any(len(offsets) < 100 for offsets in seen.values()):
                    for tp, offsets in (await consumer.poll(limit=35)).items():
                        seen[tp] += offsets
                    check(consumer, (20 + 3 * 2) * BATCH)
            assert all(offsets == list(range(100)) for offsets in seen.values())

    async def test_a_batch_larger_than_all_memory_still_comes(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0).append(5000, batch(0, 5000))
        cluster.logs[T0].append(10_000, batch(5000, 5000))
        cluster.add(T1).append(10, batch(0, 10))
        options = {"max_partition_fetch_bytes": 10, "fetch_max_bytes": 20, "buffer_memory": 20}
        async with consuming(cluster, owning(T0, T1), **options) as consumer:
            result = await consumer.read(10_010, timeout=30)
        assert result == {T0: list(range(10_000)), T1: list(range(10))}

    async def test_paused_partitions_do_not_stop_the_others(self) -> None:
        cluster = sixty()
        subscription = owning(*PARTITIONS)
        async with consuming(cluster, subscription, **self.OPTIONS) as consumer:
            await settled()
            held = set(consumer.fetcher.buffer.queues.bytes_by_partition())
            subscription.pause(held)
            consumer.fetcher.wake()
            others = len(PARTITIONS) - len(held)
            result = await consumer.read(others * 100, timeout=30)
            assert result.keys() == set(PARTITIONS) - held
            subscription.resume(held)
            consumer.fetcher.wake()
            result = await consumer.read(len(held) * 100, timeout=30)
            assert all(offsets == list(range(100)) for offsets in result.values())


class TestOrder:
    def test_a_busy_partition_does_not_keep_the_quiet_ones_waiting(self) -> None:
        """One partition always has more, nine have a little. None waits for more than a round."""
        partitions = [TopicPartition("t", number) for number in range(10)]
        hot, cold = partitions[0], partitions[1:]
        bench = Bench(*partitions)
        ends = dict.fromkeys(partitions, 0)
        waiting: dict[TopicPartition, int] = {}
        for _ in range(200):
            for tp in partitions:
                if not bench.buffer.queues.bytes_by_partition().get(tp):
                    count = 50 if tp == hot else 1
                    bench.put(tp, ends[tp], batch(ends[tp], count))
                    ends[tp] += count
            drained = bench.drain(5)
            for tp in partitions:
                waiting[tp] = 0 if tp in drained else waiting.get(tp, 0) + 1
            assert max(waiting.values()) < len(partitions)
            assert waiting[hot] < len(partitions)
        assert all(ends[tp] >= 20 for tp in cold)

    @pytest.mark.parametrize(
        ("order", "expected"),
        [("fair", [0, 1, 2, 3, 0, 1, 2, 3]), ("lag", [3, 0, 3, 1, 3, 2, 3, 0])],
    )
    def test_the_laggiest_has_every_other_turn_if_that_is_wanted(
        self, order: str, expected: list[int]
    ) -> None:
        partitions = [TopicPartition("t", number) for number in range(4)]
        bench = Bench(*partitions, buffered={"laggiest_first": order == "lag"})
        for tp in partitions:
            bench.put(tp, 0, batch(0, 100))
            state = bench.subscription.partition(tp)
            assert state is not None
            state.status.watermarks = Watermarks(100 + 1000 * tp.partition)
        turns = [tp.partition for _ in range(8) for tp in bench.drain(2)]
        assert turns == expected
