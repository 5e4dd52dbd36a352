"""A consumer's own lag in seconds, against a model that knows the timestamp of each record."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.records import Compression
from kohort.testing import Cluster, MemoryCluster, ProducerRecord
from tests.consumer.kit import poll_until
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual, run_virtual_on

FETCHING = "consumer-fetch-manager-metrics"
TPS = [TopicPartition("t", number) for number in range(2)]
CODECS = list(Compression)


def ages(consumer: Any) -> dict[TopicPartition, float]:
    """Return the lag in seconds of each partition where metrics() has it."""
    figures = consumer.metrics()
    return {
        tp: figures[f"{FETCHING}.t-{tp.partition}"]["lag-seconds"]
        for tp in TPS
        if "lag-seconds" in figures.get(f"{FETCHING}.t-{tp.partition}", {})
    }


async def simulate(seed: int) -> int:
    """Write and read at random, and compare each known lag. Return the number of known ones."""
    rng = random.Random(seed)
    times: dict[TopicPartition, list[int]] = {tp: [] for tp in TPS}
    known = 0
    async with MemoryCluster(topics={"t": 2}, seed=seed) as cluster:
        async with MemoryConsumer(
            cluster, group_id=None, wall_clock=cluster.wall_clock, max_poll_records=7
        ) as consumer:
            consumer.assign(TPS)
            consumer.seek_to_beginning(*TPS)
            for _ in range(20):
                action = rng.choice(["write", "poll", "iterate", "seek", "wait"])
                tp = rng.choice(TPS)
                if action == "write":
                    now_ms = int(cluster.wall_clock() * 1000)
                    new = [now_ms - rng.randrange(900_000) for _ in range(rng.randrange(1, 30))]
                    records = [
                        ProducerRecord(value="x", timestamp=at, partition=tp.partition)
                        for at in new
                    ]
                    cluster.produce("t", records, compression=rng.choice(CODECS))
                    times[tp] += new
                elif action == "poll":
                    await consumer.poll(timeout_ms=1000, max_records=rng.randrange(1, 20))
                elif action == "iterate":
                    for _ in range(rng.randrange(1, 15)):
                        with anyio.move_on_after(1):
                            await anext(consumer)
                elif action == "seek" and times[tp]:
                    consumer.seek(tp, rng.randrange(len(times[tp])))
                else:
                    await anyio.sleep(rng.uniform(0, 20))
                now, found = cluster.wall_clock(), ages(consumer)
                facts = consumer.explain().as_dict()["partitions"]
                for place, age in found.items():
                    position = await consumer.position(place)
                    lag = consumer.lag()[place]
                    at = times[place][position] / 1000 if lag else now
                    assert age == now - at, (seed, place, position)
                    assert facts[f"t-{place.partition}"]["lag_seconds"] == age
                    known += bool(lag)
    return known


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.cases(6)
def test_lag_equals_that_of_a_model_that_knows(seed: int) -> None:
    assert run_virtual(simulate, seed) > 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_lag_of_buffered_records_is_known_in_each_way_of_reading(backend: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            now_ms = int(cluster.wall_clock() * 1000)
            cluster.produce(
                "t",
                [
                    ProducerRecord(value="x", timestamp=now_ms - 1000 * at)
                    for at in range(40, 0, -1)
                ],
            )
            async with MemoryConsumer(
                cluster, group_id=None, wall_clock=cluster.wall_clock
            ) as consumer:
                consumer.assign(TPS[:1])
                consumer.seek_to_beginning(TPS[0])
                assert ages(consumer) == {}  # nothing is fetched yet
                await consumer.poll(timeout_ms=1000, max_records=3)
                start = now_ms / 1000
                assert ages(consumer) == {TPS[0]: cluster.wall_clock() - start + 37}
                for _ in range(5):
                    await anext(consumer)
                assert ages(consumer) == {TPS[0]: cluster.wall_clock() - start + 32}
                assert f"({ages(consumer)[TPS[0]]:.1f} s)" in str(consumer.explain())
                figures = (consumer.metrics() or {})[FETCHING]
                assert figures["lag-seconds-max"] == ages(consumer)[TPS[0]]
                await consumer.poll(timeout_ms=1000)
                assert ages(consumer) == {TPS[0]: 0.0}
                consumer.assign([])
                assert "lag-seconds-max" not in (consumer.metrics() or {})[FETCHING]

    run_virtual_on(backend, main)


def test_lag_of_the_sync_api_is_known_amid_an_iteration() -> None:
    with Cluster(topics={"t": 1}) as cluster:
        cluster.produce(
            "t", [ProducerRecord(value="x", timestamp=at) for at in range(1000, 31000, 1000)]
        )
        with KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, wall_clock=lambda: 100.0
        ) as consumer:
            consumer.assign(TPS[:1])
            consumer.seek_to_beginning(TPS[0])
            for number, _ in enumerate(consumer, 1):
                if number == 30:
                    break
                assert ages(consumer) == {TPS[0]: 100.0 - (number + 1)}
            poll_until(consumer, lambda: ages(consumer) == {TPS[0]: 0.0})
