"""Many consumers in one process: resources that restarts leave, and records that they miss.

The long form is 200 consumers on 400 partitions for 10 minutes. KOHORT_FLEET_SECONDS sets another
time. ``-s`` shows its table.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import threading
from collections.abc import Callable

import anyio
import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from tests.consumer.engine import fleet
from tests.consumer.engine.fleet import Fleet, Ledger, Member, Producers, Sample

LONG_S = float(os.environ.get("KOHORT_FLEET_SECONDS", "600"))
FIRST = 0.25
"""Share of the time after which the process counts as warmed up."""
DRAIN_S = 90.0
RESTARTERS = 5
SAMPLES = 100
SEED = 1

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


class Restarts:
    """Restarts of all members, several at the same time."""

    def __init__(self, consumers: Fleet, members: list[Member]) -> None:
        self._consumers, self._members = consumers, members
        self._rng = random.Random(SEED)
        self.count = 0

    async def go_on(self, numbers: range, pause: float) -> None:
        """Restart these members in random order until cancelled."""
        while True:
            number = self._rng.choice(numbers)
            with anyio.CancelScope(shield=True):
                await self._members[number].end(abruptly=self._rng.random() < 0.3)
                self._members[number] = self._consumers.start(number)
            self.count += 1
            await anyio.sleep(pause)

    async def watched(self, seconds: float, pause: float) -> list[Sample]:
        """Restart members for some time and return samples of the process."""
        samples: list[Sample] = []
        begun = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for first in range(RESTARTERS):
                numbers = range(first, len(self._members), RESTARTERS)
                tasks.start_soon(self.go_on, numbers, pause)
            while (at := anyio.current_time() - begun) < seconds:
                samples.append(fleet.sample(at, self.count, self._consumers))
                if self._consumers.errors:
                    raise self._consumers.errors[0]
                await anyio.sleep(seconds / SAMPLES)
            tasks.cancel_scope.cancel()
        return samples


async def _ends(servers: str, partitions: int) -> dict[int, int]:
    async with AsyncKafkaConsumer(bootstrap_servers=servers) as consumer:
        ends = await consumer.end_offsets(
            [TopicPartition(fleet.TOPIC, number) for number in range(partitions)]
        )
    return {partition.partition: end for partition, end in ends.items()}


async def _drain(ledgers: dict[str, Ledger], ends: dict[int, int]) -> None:
    """Wait until each group has read everything."""
    with anyio.move_on_after(DRAIN_S):
        await fleet.until(lambda: not any(each.missing(ends) for each in ledgers.values()))
    for group, ledger in ledgers.items():
        assert ledger.missing(ends) == {}, group


async def _life(
    servers: str, count: int, partitions: int, seconds: float, rate: int, pause: float
) -> list[Sample]:
    producers = Producers(servers, partitions, rate)
    try:
        async with anyio.create_task_group() as tasks:
            consumers = Fleet(servers, tasks)
            members = [consumers.start(number) for number in range(count)]
            try:
                samples = await Restarts(consumers, members).watched(seconds, pause)
                producers.stop()
                ends = await _ends(servers, partitions)
                assert sum(ends.values()) > 0
                await _drain(consumers.ledgers, ends)
            finally:
                with anyio.CancelScope(shield=True):
                    for member in members:
                        await member.end(abruptly=False)
        assert consumers.errors == []
    finally:
        producers.kill()
    return samples


def _median(samples: list[Sample], what: Callable[[Sample], float]) -> float:
    return statistics.median(map(what, samples))


@pytest.mark.timeout(LONG_S + 300)
@pytest.mark.parametrize(
    ("count", "partitions", "seconds", "rate", "pause"),
    [
        pytest.param(30, 60, 20.0, 500, 0.5, marks=pytest.mark.long),
        pytest.param(200, 400, LONG_S, 1000, 1.0, marks=pytest.mark.long),
    ],
    ids=["short", "long"],
)
def test_fleet_loses_nothing_and_leaks_nothing_when_restarted(
    count: int, partitions: int, seconds: float, rate: int, pause: float
) -> None:
    before = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    with fleet.broker(partitions) as servers:
        samples = anyio.run(_life, servers, count, partitions, seconds, rate, pause)
    print(f"\n{count} consumers on {partitions} partitions\n{fleet.table(samples)}")
    assert set(threading.enumerate()) <= before[0]
    assert len(os.listdir("/proc/self/fd")) <= before[1]
    early = [each for each in samples if FIRST * seconds < each.at <= 2 * FIRST * seconds]
    late = [each for each in samples if each.at > (1 - FIRST) * seconds]
    assert max(each.engines for each in samples) <= count + RESTARTERS
    for what, slack in ((lambda each: each.threads, 2), (lambda each: each.descriptors, 10)):
        assert _median(late, what) <= 1.02 * _median(early, what) + slack
    assert _median(late, lambda each: each.megabytes) <= (
        1.05 * _median(early, lambda each: each.megabytes) + 8
    )


def test_ledger_names_the_ranges_when_offsets_are_missing() -> None:
    ledger = Ledger()
    for first, after in ((0, 5), (7, 9), (3, 6), (9, 12)):
        ledger.note(0, first, after)
    assert (ledger.records, ledger.duplicates) == (11, 2)
    assert ledger.missing({0: 12, 1: 0, 2: 1}) == {0: [(0, 6), (7, 12)], 2: []}
    ledger.note(0, 6, 7)
    assert ledger.missing({0: 12, 1: 0}) == {}
