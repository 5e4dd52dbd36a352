"""Consumers over a slow line: the first record comes soon, and then the line is used."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from kohort import KafkaConsumer
from kohort.records import Compression
from kohort.testing import Cluster, MemoryCluster, Security
from kohort.transport.connection._response_reader import ResponseReader
from tests.consumer.virtual import MemoryConsumer
from tests.support.distance import long_line
from tests.support.virtual import run_virtual

RATE = 1_100_000
"""Bytes per second of Kafka's default send buffer at a round trip of 150 ms."""
FAR = 0.15
SECONDS = 20
BATCH = 20
"""Records of a batch."""


def fill(cluster: MemoryCluster, partitions: int, seconds: float, compression: Compression) -> None:
    """Add at least what the line delivers in this time, in random values of 1 KB."""
    batches = int(seconds * RATE / 1000 / BATCH / partitions) + 2
    for partition in range(partitions):
        for _ in range(batches):
            values = [os.urandom(1000) for _ in range(BATCH)]
            cluster.produce("t", values, partition=partition, compression=compression)


def read_for(
    seconds: float, partitions: int, compression: Compression = Compression.NONE, **options: Any
) -> Any:
    """Read over a slow line in virtual time. Return the bytes and the time of the first record."""

    async def main() -> tuple[int, float]:
        async with MemoryCluster(topics={"t": partitions}) as cluster:
            fill(cluster, partitions, seconds, compression)
            cluster.slow(RATE, piece=1 << 15, api="Fetch")
            size, first = 0, float("inf")
            async with MemoryConsumer(cluster, "t", group_id=None, **options) as consumer:
                began = anyio.current_time()
                while (now := anyio.current_time()) < began + seconds:
                    polled = await consumer.poll(timeout_ms=500, max_records=100_000)
                    for records in polled.values():
                        size += sum(len(record.value or b"") for record in records)
                        first = min(first, now - began)
            return size, first

    return run_virtual(main)


@pytest.mark.cases(2)  # each reads for seconds of virtual time
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("partitions", [1, 64, 1000])
def test_line_is_used_from_the_first_seconds(partitions: int, compression: Compression) -> None:
    size, first = read_for(SECONDS, partitions, compression)
    assert first < 3
    assert size >= 0.9 * (SECONDS - 2) * RATE, size


@pytest.mark.parametrize("moves", [True, False])
def test_large_fetch_outlasts_its_timeout_as_its_deadline_moves(moves: bool) -> None:
    """Without a moved deadline, the same response would be thrown away for ever."""
    rate = patch("kohort.fetcher.requests._sizes.LINE_SECONDS", 1000.0)
    still = patch.object(ResponseReader, "is_receiving", lambda *_: False)
    with rate:
        if moves:
            assert read_for(SECONDS, 64, request_timeout_ms=2000)[0] > 0.6 * SECONDS * RATE
        else:
            with still:
                assert read_for(SECONDS, 64, request_timeout_ms=2000)[0] < 0.3 * SECONDS * RATE


@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL"])
def test_sync_consumer_reads_over_a_slow_line(security: str) -> None:
    secured: dict[str, Any] = {} if security == "PLAINTEXT" else {"security": Security(("SSL",))}
    with Cluster(topics={"t": 4}, **secured) as cluster:
        for partition in range(4):
            for _ in range(10):
                cluster.produce("t", [os.urandom(1000)] * 100, partition=partition)
        cluster.slow(10 * RATE, piece=1 << 16, api="Fetch")
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        if security == "SSL":
            options |= {"security_protocol": "SSL", "ssl_cafile": cluster.ssl_cafile}
        with KafkaConsumer("t", group_id="g", auto_offset_reset="earliest", **options) as consumer:
            count = 0
            while count < 4000:
                count += sum(map(len, consumer.poll(timeout_ms=60_000).values()))


def test_explain_names_the_rate_of_a_slow_line() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}) as cluster:
            fill(cluster, 4, SECONDS, Compression.NONE)
            cluster.slow(RATE, piece=1 << 15, api="Fetch")
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                with anyio.move_on_after(SECONDS / 2):
                    while True:
                        await consumer.poll(timeout_ms=500, max_records=100_000)
                explained = consumer.explain()
                (line,) = explained.as_dict()["cluster"]["slow_lines"].values()
                assert line["bytes_per_second"] == pytest.approx(RATE, rel=0.1)
                assert any("is slow: it delivers 1." in reason for reason in explained.reasons)
                assert not any("has not responded" in reason for reason in explained.reasons)

    run_virtual(main)


def test_distant_broker_is_read_over_several_connections() -> None:
    """Each connection delivers RATE, so several deliver more."""

    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 12}) as cluster,
            long_line(cluster.connect, FAR) as line,
        ):
            fill(cluster, 12, 70, Compression.NONE)
            cluster.slow(RATE, piece=1 << 15, api="Fetch")
            options: dict[str, Any] = {"group_id": None, "connect": line.connect}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                size, began = 0, anyio.current_time()
                offsets = dict.fromkeys(range(12), 0)
                while anyio.current_time() < began + 9:
                    polled = await consumer.poll(timeout_ms=500, max_records=100_000)
                    for tp, records in polled.items():
                        assert records[0].offset == offsets[tp.partition]
                        offsets[tp.partition] = records[-1].offset + 1
                        size += sum(len(record.value or b"") for record in records)
                explained = consumer.explain()
                (way,) = explained.as_dict()["cluster"]["distant_brokers"].values()
                metrics = (consumer.metrics() or {})["consumer-fetch-manager-metrics"]
        assert size > 2 * 9 * RATE
        assert way["round_trip_seconds"] == pytest.approx(FAR)
        assert way["connections"] == 1 + metrics["parallel-connections"] == 12
        assert (way["bytes_per_second"] or 0) > 4 * RATE
        assert any("is far away: a round trip takes 150 ms" in text for text in explained.reasons)

    run_virtual(main)


WIDE = 125_000_000


@pytest.mark.cases(1)  # each reads for seconds of virtual time
@pytest.mark.parametrize("round_trip", [FAR, 2 * FAR])
def test_wide_line_is_full_two_round_trips_after_the_first_record(round_trip: float) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(topics={"t": 32}) as cluster,
            long_line(cluster.connect, round_trip, WIDE) as line,
        ):
            fill(cluster, 32, WIDE / RATE, Compression.NONE)
            async with MemoryConsumer(cluster, "t", connect=line.connect) as consumer:
                size, began = 0, 0.0
                while not began or anyio.current_time() < began + 1:
                    polled = await consumer.poll(timeout_ms=100, max_records=100_000)
                    began = began or (anyio.current_time() if polled else 0.0)
                    for records in polled.values():
                        size += sum(len(record.value or b"") for record in records)
            # What has arrived of incomplete responses does not count.
            assert size > 0.9 * (1 - 2 * round_trip) * WIDE

    run_virtual(main)


@pytest.mark.parametrize(
    ("brokers", "group_id", "named", "trips"),
    [
        (1, "a", True, {"consumer": 7, "auto": 7, "classic": 8}),
        (3, "b", True, {"consumer": 8, "auto": 8, "classic": 9}),
        (3, "a", True, {"consumer": 9, "auto": 10, "classic": 10}),
        (3, "b", False, {"consumer": 7, "auto": 7, "classic": 8}),
        (3, "a", False, {"consumer": 7, "auto": 8, "classic": 8}),
    ],
    ids=[
        "one broker",
        "coordinator of first contact",
        "other coordinator",
        "unnamed coordinator of first contact",
        "unnamed other coordinator",
    ],
)
@pytest.mark.parametrize("protocol", ["consumer", "auto", "classic"])
def test_first_record_comes_after_few_round_trips(
    protocol: str, brokers: int, group_id: str, named: bool, trips: dict[str, int]
) -> None:
    """They are those of a new group, from the first connection to the return of poll().

    A broker that is named when connecting confirms its name before the first request.
    """

    async def main() -> float:
        async with (
            MemoryCluster(brokers, topics={"t": 4}) as cluster,
            long_line(cluster.connect, FAR) as line,
        ):
            for partition in range(4):
                cluster.produce("t", [b"a"], partition=partition)
            began = anyio.current_time()
            options: dict[str, Any] = {"group_protocol": protocol, "group_id": group_id}
            options |= {"connect": line.connect, "metadata_cluster_check_enable": named}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                while not await consumer.poll(timeout_ms=1000):
                    pass
                return anyio.current_time() - began

    assert run_virtual(main) == pytest.approx(trips[protocol] * FAR, abs=FAR / 10)
