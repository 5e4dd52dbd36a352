"""Leader changes while a consumer reads: no record is lost or repeated, no position is reset."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

PARTITIONS = 6
T0 = TopicPartition("t", 0)


class Count:
    """Numbers of produced and read records by partition."""

    def __init__(self) -> None:
        self.produced: Counter[int] = Counter()
        self.read: Counter[int] = Counter()

    def take(self, tp: TopicPartition, offset: int) -> None:
        assert offset == self.read[tp.partition], tp
        self.read[tp.partition] += 1

    @property
    def done(self) -> bool:
        return self.read == self.produced


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    assert not [each for each in caplog.messages if "resetting" in each or "cut off" in each]


@pytest.mark.parametrize(
    ("seconds", "seed"), [(10, 0), *(pytest.param(60, n, marks=pytest.mark.long) for n in (1, 2))]
)
def test_leaders_that_move_every_second_cost_no_record(
    seconds: int, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    rng, count = random.Random(seed), Count()

    async def main() -> None:
        async with MemoryCluster(brokers=3, topics={"t": PARTITIONS}, seed=seed) as cluster:
            async with MemoryConsumer(cluster, "t", seed=seed) as consumer:
                async with anyio.create_task_group() as tasks:
                    moving = True

                    async def produce() -> None:
                        while moving:
                            partition = rng.randrange(PARTITIONS)
                            size = rng.randint(1, 50)
                            cluster.produce("t", [b"x" * 100] * size, partition=partition)
                            count.produced[partition] += size
                            await anyio.sleep(rng.random() * 0.1)

                    async def read() -> None:
                        while moving or not count.done:
                            polled = await consumer.poll(timeout_ms=100, max_records=200)
                            for tp, records in polled.items():
                                for record in records:
                                    count.take(tp, record.offset)

                    tasks.start_soon(produce)
                    tasks.start_soon(read)
                    for _ in range(seconds):
                        await anyio.sleep(1)
                        for partition in range(PARTITIONS):
                            cluster.move_leader("t", partition)
                    moving = False
                    tasks.cancel_scope.deadline = anyio.current_time() + 30
                assert count.done, (count.read, count.produced)

    run_virtual(main)
    check_log(caplog)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_leaders_move_every_second_for_a_minute_of_real_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    count = Count()
    stop = threading.Event()
    with Cluster(brokers=3, topics={"t": PARTITIONS}) as cluster:

        def produce() -> None:
            while not stop.is_set():
                for partition in range(PARTITIONS):
                    cluster.produce("t", [b"x" * 100] * 100, partition=partition)
                    count.produced[partition] += 100
                stop.wait(0.01)

        def move() -> None:
            while not stop.wait(1):
                for partition in range(PARTITIONS):
                    cluster.move_leader("t", partition)

        threads = [threading.Thread(target=each, daemon=True) for each in (produce, move)]
        for each in threads:
            each.start()
        with KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            began = time.monotonic()
            while not stop.is_set() or not count.done:
                assert time.monotonic() - began < 120, (count.read, count.produced)
                for tp, records in consumer.poll(timeout_ms=100).items():
                    for record in records:
                        count.take(tp, record.offset)
                if time.monotonic() - began > 60 and not stop.is_set():
                    stop.set()
                    for each in threads:
                        each.join()
    assert sum(count.read.values()) > 10_000
    check_log(caplog)


def test_the_new_leader_is_asked_at_once_without_new_metadata() -> None:
    """In KIP-951 the former leader's response names the new leader."""

    async def main() -> None:
        async with MemoryCluster(brokers=2, topics={"t": 1}) as cluster:
            async with MemoryConsumer(
                cluster, "t", group_id=None, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000
            ) as consumer:
                cluster.produce("t", ["a"])
                await values(consumer, 1)
                for number in range(4):
                    with cluster.fail("Metadata", ErrorCode.LEADER_NOT_AVAILABLE):
                        cluster.move_leader("t")
                        cluster.produce("t", [b"%d" % number])
                        began = anyio.current_time()
                        assert await values(consumer, 1) == [b"%d" % number]
                        assert anyio.current_time() - began < 1
                    await anyio.sleep(30)

    run_virtual(main)


def test_a_hint_that_is_older_than_what_is_known_is_passed_over() -> None:
    async def main() -> None:
        async with MemoryCluster(brokers=3, topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_id=None) as consumer:
                cluster.produce("t", ["a"])
                await values(consumer, 1)
                metadata = consumer._driver.engine.cluster.metadata
                leader = metadata.leader(T0)
                assert leader is not None
                for epoch in (leader.epoch - 1, leader.epoch):
                    stale = leader._replace(node=leader.node % 3 + 1, epoch=epoch)
                    consumer._driver.engine.cluster.learn_leaders({T0: stale}, [])
                    assert consumer._driver.engine.cluster.metadata is metadata
                unknown = leader._replace(node=99, epoch=leader.epoch + 1)
                consumer._driver.engine.cluster.learn_leaders({T0: unknown}, [])
                assert consumer._driver.engine.cluster.metadata is metadata

    run_virtual(main)
