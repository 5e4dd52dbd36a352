"""The number of connections for the partitions of a distant broker that are behind."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort.fetcher.requests._candidates import NodeCandidates
from kohort.fetcher.requests._parallel import (
    DISTANT_SECONDS,
    IDLE_SECONDS,
    MOST_CONNECTIONS,
    RETRY_SECONDS,
    Delivery,
    ParallelPolicy,
    needed_of,
)
from kohort.fetcher.requests._request import PartitionRequest
from kohort.protocol.messages import FetchResponse
from kohort.records import NewRecord, encode_batch
from kohort.transport import Line
from kohort.transport.connection._response_reader import ROUND_TRIPS
from kohort.types import TopicPartition
from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import owning

MIB = 1 << 20
FAR = 0.15


class Deliveries:
    """A line over which each connection delivers ``rate`` at most, and all of them ``most``."""

    def __init__(
        self, rate: float, most: float = math.inf, *, round_trip: float = FAR, behind: int = 32
    ) -> None:
        self.policy = ParallelPolicy()
        self.rate, self.most, self.round_trip, self.behind = rate, most, round_trip, behind
        self.now = 100.0
        self.numbers = [1]

    def deliver(self, responses: int = 1, size: int = MIB) -> int:
        """Deliver responses in turn, and return the number of connections."""
        for _ in range(responses):
            number = self.policy.connections
            each = min(self.rate, self.most / number)
            seconds = self.round_trip + size / each
            self.now += seconds / number
            delivery = Delivery(self.now - seconds, self.now, size, self.round_trip, each)
            self.policy.note_response(delivery, self.behind)
            if self.policy.connections != self.numbers[-1]:
                self.numbers.append(self.policy.connections)
        return self.policy.connections


class TestGrowth:
    def test_number_grows_while_the_send_buffer_is_the_limit(self) -> None:
        line = Deliveries(1_100_000, behind=64)
        assert line.deliver(300) == MOST_CONNECTIONS
        assert line.numbers == [1, 2, 8, 32]

    def test_number_is_that_before_when_the_line_is_full(self) -> None:
        line = Deliveries(1_100_000, 3_000_000)
        line.deliver(90)
        assert line.numbers == [1, 2, 8, 32, 8]

    def test_round_trips_are_filled_after_the_first_response(self) -> None:
        line = Deliveries(125e6, 125e6)
        assert line.deliver(size=2 * MIB) == 10

    def test_rate_of_a_busy_receiver_opens_no_others(self) -> None:
        """All bytes were in the system's buffer, so the line seems to be fast."""
        policy = ParallelPolicy()
        policy.note_response(Delivery(0.0, 0.8, MIB // 2, FAR, math.inf), 32)
        assert policy.connections == 2

    def test_slow_line_has_two_connections(self) -> None:
        line = Deliveries(1_100_000, 1_100_000)
        line.deliver(40)
        assert line.numbers == [1, 2, 8, 2]

    @pytest.mark.parametrize("behind", [2, 3, 5, 12])
    def test_each_connection_has_a_partition(self, behind: int) -> None:
        line = Deliveries(1_100_000, behind=behind)
        line.deliver(90)
        assert max(line.numbers) == behind

    def test_more_connections_are_tried_again_later(self) -> None:
        line = Deliveries(1_100_000, 3_000_000)
        line.deliver(90)
        ended, line.most = line.now, math.inf
        while line.deliver() == 8:
            assert line.now < ended + RETRY_SECONDS + 30
        assert line.now >= ended + RETRY_SECONDS - 30
        assert line.policy.connections == 32

    def test_rate_is_that_of_all_connections(self) -> None:
        line = Deliveries(1_000_000, 8_000_000)
        line.deliver(1000)
        assert 0.85 * line.most < line.policy.rate < line.most


class TestOneConnection:
    @pytest.mark.parametrize("round_trip", [0.0, 0.9 * DISTANT_SECONDS, math.inf])
    def test_near_or_unknown_broker_has_one(self, round_trip: float) -> None:
        line = Deliveries(1e6)
        line.now = 0.0
        for number in range(100):
            line.policy.note_response(Delivery(number - 1, number, MIB, round_trip, 1e6), 32)
        assert line.policy.connections == 1

    @pytest.mark.parametrize("behind", [0, 1])
    def test_one_partition_has_one(self, behind: int) -> None:
        assert Deliveries(1_100_000, behind=behind).deliver(100) == 1

    def test_broker_that_comes_near_has_one(self) -> None:
        line = Deliveries(1_100_000)
        assert line.deliver(300) == MOST_CONNECTIONS
        line.round_trip = 0.001
        assert line.deliver() == 1

    def test_empty_responses_open_none(self) -> None:
        assert Deliveries(1_100_000).deliver(10, size=0) == 1


class TestFailures:
    def test_number_falls_to_those_that_are_open_for_a_minute(self) -> None:
        line = Deliveries(1_100_000)
        line.deliver(300)
        line.policy.note_failure(line.now, 3)
        ended = line.now
        assert line.policy.connections == 3
        while line.deliver() == 3:
            pass
        assert line.now >= ended + RETRY_SECONDS
        assert line.policy.connections == 12

    def test_no_other_connection_is_opened_if_the_first_one_fails(self) -> None:
        line = Deliveries(1_100_000)
        assert line.deliver() == 2
        line.policy.note_failure(line.now, 0)
        ended = line.now
        while line.deliver() == 1:
            pass
        assert line.now >= ended + RETRY_SECONDS


def test_connections_are_needed_up_to_the_last_one_in_use() -> None:
    now = 1000.0
    recent, long_ago = now - IDLE_SECONDS / 2, now - IDLE_SECONDS
    assert needed_of([], now) == 0
    assert needed_of([long_ago, long_ago], now) == 0
    assert needed_of([long_ago, recent, long_ago], now) == 2
    assert needed_of([long_ago, long_ago, math.inf], now) == 3


BATCHES = 40
PARTITIONS = [TopicPartition("t", number) for number in range(8)]
EVERYTHING = {tp: list(range(BATCHES)) for tp in PARTITIONS}


@asynccontextmanager
async def reading(
    round_trip: float = FAR, **options: Any
) -> AsyncIterator[tuple[FakeCluster, Consumer]]:
    """Read partitions of 10 MiB over a line of 1 MB/s a connection."""
    cluster = FakeCluster()
    cluster.delay = 1.0
    cluster.lines[1] = line = Line()
    for _ in range(ROUND_TRIPS):
        line.note_round_trip(round_trip)
    line.note_response(MIB, 0.0, 1.0)
    for tp in PARTITIONS:
        log = cluster.add(tp)
        for offset in range(BATCHES):
            record = NewRecord(1, None, bytes(MIB // 4))
            log.append(offset + 1, encode_batch([record], base_offset=offset, leader_epoch=3))
    async with consuming(cluster, owning(*PARTITIONS), **options) as consumer:
        yield cluster, consumer
    assert not cluster.overlaps


def purposes(cluster: FakeCluster) -> set[str]:
    return {purpose for _, purpose, _ in cluster.fetches}


async def read_rest(consumer: Consumer, read: dict[TopicPartition, list[int]]) -> None:
    """Read all that is left, and add it."""
    left = len(PARTITIONS) * BATCHES - sum(map(len, read.values()))
    for tp, offsets in (await consumer.read(left, 1000)).items():
        read.setdefault(tp, []).extend(offsets)


@pytest.mark.parametrize(
    ("is_main_behind", "busy", "requests"),
    [(True, 2, [2]), (True, 0, [2, 2, 2]), (False, 2, [3]), (False, 0, [3, 3, 2])],
)
def test_free_connection_gets_only_its_share_of_the_partitions(
    is_main_behind: bool, busy: int, requests: list[int]
) -> None:
    planner = Consumer(FakeCluster(), owning(*PARTITIONS)).fetcher._planner
    connections, candidates = planner.connections(1), NodeCandidates()
    for tp in PARTITIONS:
        candidates.put(tp, PartitionRequest(tp, 1, 0, 3, MIB))
        connections.behind[tp] = 1
    connections.policy.connections = 4
    for connection in [connections.main, *connections.free_parallel(0.0)[:busy]]:
        connection.start(0.0, 0.0)
    if is_main_behind:
        planner.latest_connections[PARTITIONS[-1]] = connections.main
    fetches, withheld = planner._plan_parallel(connections, candidates, 0.0, 1)
    assert [len(fetch.plan.requests) for fetch in fetches] == requests
    assert list(withheld) == PARTITIONS


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
class TestFetching:
    async def test_each_partition_is_read_in_order_over_several_connections(self) -> None:
        async with reading() as (cluster, consumer):
            assert await consumer.read(8 * BATCHES, 1000) == EVERYTHING
        assert purposes(cluster) - {"fetch-side"} == {"fetch", *(f"fetch-{n}" for n in range(1, 8))}

    async def test_near_broker_is_read_over_one_connection(self) -> None:
        async with reading(DISTANT_SECONDS / 2) as (cluster, consumer):
            assert await consumer.read(8 * BATCHES, 1000) == EVERYTHING
        assert purposes(cluster) == {"fetch"}

    async def test_broker_that_proves_to_be_near_is_read_over_one_connection(self) -> None:
        async with reading() as (cluster, consumer):
            read = await consumer.read(BATCHES, 1000)
            cluster.lines[1].note_round_trip(DISTANT_SECONDS / 2)
            await anyio.sleep(2 * cluster.delay)
            count = len(cluster.fetches)
            await read_rest(consumer, read)
            await consumer.poll(3 * IDLE_SECONDS)
        assert read == EVERYTHING
        assert {purpose for _, purpose in cluster.closed} == {
            purpose for purpose in purposes(cluster) if purpose[-1].isdigit()
        }
        assert {purpose for _, purpose, _ in cluster.fetches[count:]} <= {"fetch", "fetch-side"}

    async def test_fetches_stay_within_the_memory(self) -> None:
        limit = 4 * MIB
        async with reading(buffer_memory=limit, fetch_max_bytes=limit) as (cluster, consumer):
            memory = consumer.fetcher.buffer.queues.limits.memory
            read: dict[TopicPartition, list[int]] = {}
            while sum(map(len, read.values())) < 8 * BATCHES:
                for tp, offsets in (await consumer.poll(limit=1)).items():
                    read.setdefault(tp, []).extend(offsets)
                # A fetch of one partition is granted even if memory is full.
                assert memory.used + memory.in_flight_bytes <= limit + MIB
        assert read == EVERYTHING
        assert len(purposes(cluster)) > 2

    async def test_throttle_time_delays_fetches_over_all_connections(self) -> None:
        async with reading() as (cluster, consumer):
            read = await consumer.read(4 * BATCHES, 1000)
            assert len(purposes(cluster)) > 2

            def throttled(node: int, request: Any) -> FetchResponse:
                response, _ = cluster.answer(node, request)
                response.throttle_time_ms = 30_000
                throttles.append(anyio.current_time())
                return response

            throttles: list[float] = []
            cluster.scripts.append(throttled)
            while not throttles:
                for tp, offsets in (await consumer.poll()).items():
                    read[tp] += offsets
            await anyio.sleep(cluster.delay)
            count = len(cluster.fetches)
            await anyio.sleep(28 - cluster.delay)
            assert len(cluster.fetches) == count
            await read_rest(consumer, read)
        assert read == EVERYTHING

    async def test_failed_connection_delays_no_other(self) -> None:
        async with reading(retry_backoff_ms=100_000, retry_backoff_max_ms=100_000) as (
            cluster,
            consumer,
        ):
            read = await consumer.read(4 * BATCHES, 1000)
            parallel = [key for key in cluster.in_flight if key[1] not in ("fetch", "fetch-side")]
            assert parallel
            cluster.failing.add(parallel[0])
            began = anyio.current_time()
            await read_rest(consumer, read)
            assert anyio.current_time() < began + 60
        assert read == EVERYTHING
        assert parallel[0] in cluster.closed

    async def test_revoked_partition_is_fetched_no_longer(self) -> None:
        async with reading() as (cluster, consumer):
            await consumer.read(3 * BATCHES, 1000)
            kept = PARTITIONS[:4]
            consumer.subscription.assign(kept)
            consumer.fetcher.wake()
            await anyio.sleep(2 * cluster.delay)
            count = len(cluster.fetches)
            for _ in range(30):
                await consumer.poll()
            fetched = {
                each.partition
                for _, _, request in cluster.fetches[count:]
                for topic in request.topics
                for each in topic.partitions
            }
            assert len(cluster.fetches) > count
        assert fetched <= {tp.partition for tp in kept}

    async def test_connections_without_fetches_are_closed(self) -> None:
        async with reading() as (cluster, consumer):
            await consumer.read(8 * BATCHES, 1000)
            await consumer.poll(2 * IDLE_SECONDS)
        assert set(cluster.closed) == {
            (1, purpose) for purpose in purposes(cluster) - {"fetch", "fetch-side"}
        }
