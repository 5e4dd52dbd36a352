"""The number of bytes that fetches request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kohort.config import FetchConfig
from kohort.fetcher.requests._sizes import FetchSizes
from kohort.records import NewRecord, encode_batch
from kohort.transport.connection._response_reader import MEASURED_BYTES
from kohort.types import TopicPartition
from tests.fetcher.fake import FakeCluster, consuming
from tests.fetcher.making import T0, owning

MIB = 1 << 20
NEAR, QUICK, MIDDLING, SLOW = 0.01, 0.05, 0.3, 0.6
PARTITIONS = [TopicPartition("t", number) for number in range(40)]


def sizes(**options: Any) -> FetchSizes:
    """Return the sizes over fast lines to two brokers, whose own speed is not known."""
    found = FetchSizes(FetchConfig(**options))
    for node in (1, 2):
        found.note_response(node, 0, 50 * MIB, SLOW)
    return found


class TestSizesByTheLine:
    def test_first_response_is_small(self) -> None:
        assert FetchSizes(FetchConfig()).response_bytes(1) == MIB // 2
        assert FetchSizes(FetchConfig(fetch_max_bytes=1000)).response_bytes(1) == 1000

    def test_near_broker_has_its_sizes_after_two_full_responses(self) -> None:
        found = FetchSizes(FetchConfig())
        found.note_response(1, MIB // 2, MIB // 2, 0.001, 1e9)
        assert found.response_bytes(1) == 2 * MIB
        found.note_response(1, MIB, 2 * MIB, 0.002, 1e9)
        assert found.response_bytes(1) == 4 * MIB

    @pytest.mark.parametrize("partitions", [1, 64, 1000])
    @pytest.mark.parametrize("rate", [100_000, 1_100_000, 10_000_000])
    def test_response_takes_two_seconds_at_most(self, partitions: int, rate: int) -> None:
        found = FetchSizes(FetchConfig())
        found.partitions = partitions
        for _ in range(9):
            size = found.response_bytes(1)
            found.note_response(1, min(size, MIB), size, size / rate, rate)
        assert found.response_bytes(1) == 2 * rate

    def test_response_stays_measurable_over_the_slowest_line(self) -> None:
        found = sizes()
        found.note_response(1, MIB, MIB, 1000.0, 1000)
        assert found.response_bytes(1) == MIB // 8 >= 2 * MEASURED_BYTES

    def test_slow_line_limits_a_given_size(self) -> None:
        found = sizes(fetch_max_bytes=30 * MIB)
        assert found.response_bytes(1) == 30 * MIB
        found.note_response(1, MIB, 30 * MIB, 30.0, MIB)
        assert found.response_bytes(1) == 2 * MIB

    def test_small_response_does_not_raise_the_limit(self) -> None:
        found = FetchSizes(FetchConfig())
        found.note_response(1, 1000, 1000, NEAR, 1e9)
        assert found.response_bytes(1) == MIB // 2

    def test_limit_grows_by_steps_when_the_line_recovers(self) -> None:
        found = FetchSizes(FetchConfig())
        found.note_response(1, MIB // 2, MIB // 2, 5.0, MIB // 10)
        assert found.response_bytes(1) < MIB // 4
        steps = 0
        while found.response_bytes(1) < 4 * MIB:
            size, steps = found.response_bytes(1), steps + 1
            found.note_response(1, size, size, NEAR, 1e9)
        assert steps == 3


class TestDistantBrokers:
    def test_two_round_trips_of_bytes_are_in_flight(self) -> None:
        found = sizes()
        found.note_distance(1, 0.1, 100e6, 4)
        assert found.response_bytes(1) == 5_000_000
        assert found.partition_bytes(1) == 5_000_000
        assert found.read_ahead == 20_000_000

    @pytest.mark.parametrize(("partitions", "size"), [(2, 5), (8, 2.5), (100, 1.048576)])
    def test_partitions_share_the_bytes_in_flight(self, partitions: int, size: float) -> None:
        found = sizes()
        found.partitions = partitions
        found.note_distance(1, 0.1, 100e6, 4)
        assert found.partition_bytes(1) == size * 1e6

    @pytest.mark.parametrize(
        ("connections", "behind", "response", "partition"),
        [(1, 1, 20, 20), (16, 1, 10, 10), (16, 3, 5, 5), (4, 20, 5, 1.048576)],
    )
    def test_partitions_that_are_behind_share_the_bytes(
        self, connections: int, behind: int, response: float, partition: float
    ) -> None:
        found = sizes()
        found.partitions = 32
        found.note_distance(1, 0.1, 100e6, connections, behind=behind)
        assert found.response_bytes(1) == response * 1e6
        assert found.partition_bytes(1) == partition * 1e6

    def test_each_connection_has_some_bytes_in_flight(self) -> None:
        found = sizes()
        found.note_distance(1, 0.1, 16e6, 1)
        assert found.response_bytes(1) == 4 * MIB
        found.note_distance(1, 0.1, 16e6, 16)
        assert found.response_bytes(1) == MIB

    @pytest.mark.parametrize("connections", [1, 2, 4])
    def test_slow_line_limits_the_bytes_of_all_connections(self, connections: int) -> None:
        """Heartbeats wait behind them."""
        found = sizes()
        found.note_distance(1, 0.1, 1e6, connections)
        assert found.response_bytes(1) * connections == 2_000_000

    def test_three_quarters_of_the_memory_are_in_flight_at_most(self) -> None:
        found = sizes()
        found.note_distance(1, 0.3, math.inf, 8)
        assert found.response_bytes(1) == 3 * FetchConfig().buffer_memory // 32

    def test_main_connection_has_half_while_others_open(self) -> None:
        found = sizes()
        found.note_distance(1, 0.1, 100 * MIB, 10)
        assert found.response_bytes(1) == 2 * MIB
        assert found.opening_bytes(1) == 10 * MIB

    def test_proven_bytes_are_requested_after_the_first_response(self) -> None:
        found = FetchSizes(FetchConfig())
        found.note_distance(1, 0.1, 100 * MIB, 2)
        found.note_response(1, MIB // 2, MIB // 2, 0.1, 100 * MIB, proven=9 * MIB)
        assert found.response_bytes(1) == 9 * MIB
        found.note_response(1, MIB, 9 * MIB, 0.1, 4 * MIB, proven=9 * MIB)
        assert found.response_bytes(1) == 8 * MIB

    def test_slow_line_limits_a_response(self) -> None:
        found = sizes()
        found.note_distance(1, 0.1, MIB, 2)
        found.note_response(1, MIB, 4 * MIB, 4.0, MIB // 4)
        assert found.response_bytes(1) == MIB // 2

    def test_given_sizes_count_as_they_are(self) -> None:
        found = sizes(fetch_max_bytes=3 * MIB, max_partition_fetch_bytes=MIB // 2)
        found.note_distance(1, 0.3, 100e6, 4)
        assert found.response_bytes(1) == 3 * MIB
        assert found.partition_bytes(1) == MIB // 2

    def test_near_broker_has_its_sizes_again(self) -> None:
        found = sizes()
        before = found.response_bytes(1), found.partition_bytes(1)
        found.note_distance(1, 0.3, 100e6, 4)
        assert found.note_near(1)
        assert not found.note_near(1)
        assert (found.response_bytes(1), found.partition_bytes(1)) == before


class TestFetchSizes:
    def test_a_partition_gets_one_mebibyte_at_first(self) -> None:
        assert sizes().partition_bytes(1) == MIB

    def test_the_first_large_response_has_eight_mebibytes(self) -> None:
        found = sizes()
        assert found.response_bytes(1) == found.read_ahead == 8 * MIB
        found.note_response(1, MIB // 2 - 1, MIB // 2 - 1, NEAR)
        assert found.response_bytes(1) == found.read_ahead == 8 * MIB
        found.note_response(1, MIB, MIB, SLOW)
        assert found.response_bytes(1) == found.read_ahead == FetchConfig().fetch_max_bytes
        assert sizes(max_partition_fetch_bytes=9 * MIB).response_bytes(1) == 9 * MIB

    @pytest.mark.parametrize(
        ("seconds", "size"), [(NEAR, 4 * MIB), (QUICK, 4 * MIB), (MIDDLING, MIB), (SLOW, MIB)]
    )
    def test_a_partition_gets_more_after_a_large_quick_response(
        self, seconds: float, size: int
    ) -> None:
        found = sizes()
        found.note_response(1, MIB, MIB, seconds)
        assert found.partition_bytes(1) == size
        assert found.partition_bytes(2) == MIB

    def test_a_small_response_changes_nothing(self) -> None:
        found = sizes()
        found.note_response(1, MIB // 2 - 1, MIB // 2 - 1, NEAR)
        assert found.partition_bytes(1) == MIB
        found.note_response(1, MIB, MIB, NEAR)
        found.note_response(1, MIB // 2 - 1, MIB // 2 - 1, SLOW)
        assert found.partition_bytes(1) == 4 * MIB

    def test_a_slow_response_takes_it_back(self) -> None:
        found = sizes()
        found.note_response(1, MIB, MIB, NEAR)
        found.note_response(1, 4 * MIB, 4 * MIB, MIDDLING)
        assert found.partition_bytes(1) == 4 * MIB
        found.note_response(1, 4 * MIB, 4 * MIB, SLOW)
        assert found.partition_bytes(1) == MIB

    @pytest.mark.parametrize(("partitions", "size"), [(4, 4), (8, 2), (16, 1), (1000, 1)])
    def test_many_partitions_share_what_is_asked_for(self, partitions: int, size: int) -> None:
        found = sizes()
        found.note_response(1, MIB, MIB, QUICK)
        found.partitions = partitions
        assert found.partition_bytes(1) == size * MIB

    @pytest.mark.parametrize("given", [77, MIB, 3 * MIB, 16 * MIB])
    def test_a_given_size_of_partitions_counts_as_it_is(self, given: int) -> None:
        found = sizes(max_partition_fetch_bytes=given)
        found.partitions = 20
        assert found.partition_bytes(1) == given
        for seconds in (NEAR, SLOW):
            found.note_response(1, given, given, seconds)
            assert found.partition_bytes(1) == given

    @pytest.mark.parametrize("given", [MIB, 30 * MIB, 60 * MIB])
    def test_a_given_size_of_responses_counts_as_it_is(self, given: int) -> None:
        found = sizes(fetch_max_bytes=given, buffer_memory=64 * MIB)
        assert found.response_bytes(1) == found.read_ahead == given
        found.note_response(1, MIB, MIB, NEAR)
        assert found.response_bytes(1) == found.read_ahead == given

    @pytest.mark.parametrize(
        ("seconds", "size"), [(QUICK, 16 * MIB), (MIDDLING, 50 * MIB), (SLOW, 50 * MIB)]
    )
    def test_one_broker_that_is_not_near_has_more_read_ahead(
        self, seconds: float, size: int
    ) -> None:
        assert FetchConfig().fetch_max_bytes == 50 * MIB
        found = sizes()
        found.note_response(1, MIB, MIB, NEAR)
        found.note_response(2, MIB, MIB, seconds)
        assert found.read_ahead == size

    def test_the_nearer_a_broker_the_smaller_its_responses(self) -> None:
        found = sizes()
        found.note_response(1, MIB, MIB, MIDDLING)
        assert found.response_bytes(1) == found.read_ahead == 50 * MIB
        found.note_response(1, MIB, MIB, QUICK)
        assert found.response_bytes(1) == found.read_ahead == 16 * MIB
        found.note_response(1, MIB, MIB, NEAR)
        assert found.response_bytes(1) == found.read_ahead == 4 * MIB
        found.note_response(2, MIB, MIB, QUICK)
        assert found.response_bytes(1) == 4 * MIB
        assert found.response_bytes(2) == found.read_ahead == 16 * MIB
        found.note_response(1, MIB, MIB, MIDDLING)
        assert found.response_bytes(1) == 4 * MIB
        found.note_response(1, MIB, MIB, SLOW)
        assert found.response_bytes(1) == found.read_ahead == 50 * MIB

    def test_a_larger_response_of_a_near_broker_may_take_longer(self) -> None:
        found = sizes()
        found.note_response(1, 4 * MIB, 16 * MIB, QUICK)
        assert found.response_bytes(1) == 4 * MIB

    def test_broker_is_near_at_the_speed_of_tls(self) -> None:
        """Larger responses over TLS fill the socket, and cost a broker twice the CPU time."""
        found = sizes()
        found.note_response(1, MIB, 4 * MIB, 0.025)
        assert found.response_bytes(1) == 4 * MIB

    def test_a_response_has_room_for_what_one_partition_may_have(self) -> None:
        found = sizes(max_partition_fetch_bytes=9 * MIB)
        found.note_response(1, MIB, MIB, NEAR)
        assert found.response_bytes(1) == 9 * MIB


def large_log(cluster: FakeCluster, tp: TopicPartition, batches: int) -> None:
    """Add a partition with batches of one record of 256 KiB."""
    log = cluster.add(tp)
    value = bytes(MIB // 4)
    for offset in range(batches):
        data = encode_batch([NewRecord(1, None, value)], base_offset=offset, leader_epoch=3)
        log.append(offset + 1, data)


def asked_bytes(cluster: FakeCluster) -> list[int]:
    """Return the maximum bytes that each fetch requested for its first partition."""
    return [
        request.topics[0].partitions[0].partition_max_bytes
        for _, _, request in cluster.fetches
        if request.topics
    ]


@pytest.mark.anyio
class TestFetching:
    @pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
    @pytest.mark.parametrize(("delay", "largest"), [(NEAR, 4), (QUICK, 4), (MIDDLING, 1)])
    async def test_a_backlog_is_read_in_larger_pieces_from_a_quick_broker(
        self, delay: float, largest: int
    ) -> None:
        cluster = FakeCluster()
        cluster.delay = delay
        large_log(cluster, T0, 60)
        async with consuming(cluster, owning(T0)) as consumer:
            assert await consumer.read(60) == {T0: list(range(60))}
        assert asked_bytes(cluster)[0] == MIB
        assert max(asked_bytes(cluster)) == largest * MIB

    @pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
    async def test_every_partition_has_its_turn_in_small_responses(self) -> None:
        cluster = FakeCluster()
        cluster.delay = NEAR
        for tp in PARTITIONS:
            large_log(cluster, tp, 9)
        seen: dict[TopicPartition, list[int]] = {}
        async with consuming(cluster, owning(*PARTITIONS)) as consumer:
            while len(seen) < len(PARTITIONS):
                for tp, offsets in (await consumer.poll(limit=1)).items():
                    seen.setdefault(tp, []).extend(offsets)
            assert max(len(offsets) for offsets in seen.values()) <= 8
            left = 9 * len(PARTITIONS) - sum(map(len, seen.values()))
            for tp, offsets in (await consumer.read(left)).items():
                seen[tp] += offsets
        assert seen == {tp: list(range(9)) for tp in PARTITIONS}
        assert {request.max_bytes for _, _, request in cluster.fetches[2:]} == {4 * MIB}
