"""Members of one group that process a topic and come and go, on the virtual clock.

``python -m tests.processing.fleet`` prints a table: what becomes of the records with process(), and
without its drain, its done sets or both. A pool of tasks in a loop of poll() has neither.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.processing import process
from kohort.processing._partition import Partition
from kohort.testing import MemoryCluster
from tests.support.virtual import run_virtual

RECORDS = 4000
KEYS = 300
SEEDS = (1, 2, 3)
GUESTS = 8
"""Members that come and go beside one that stays."""
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": ["cooperative-sticky"],
        "heartbeat_interval_ms": 300,
    },
    "consumer": {"group_protocol": "consumer"},
}


@dataclass
class Report:
    """What became of the records of a topic."""

    started: int = 0
    ends: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Number of handlers that ended, by partition and offset."""
    values: defaultdict[bytes | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The values by key, in the order in which they were handled."""
    committed: int = 0
    seconds: float = 0.0

    @property
    def repeated(self) -> int:
        """Number of records that were handled again."""
        return self.ends.total() - len(self.ends)

    @property
    def cancelled(self) -> int:
        """Number of handlers that were cancelled midway."""
        return self.started - self.ends.total()

    @property
    def disordered(self) -> int:
        """Number of records handled before an earlier one of their key."""
        return sum(a > b for row in self.values.values() for a, b in pairwise(dict.fromkeys(row)))


def run_fleet(seed: int, protocol: str, **options: Any) -> Report:
    """Let members come and go until every record is handled."""
    return run_virtual(_run, seed, protocol, options, seed=seed)


async def _run(seed: int, protocol: str, options: dict[str, Any]) -> Report:
    report, rng = Report(), random.Random(seed)

    async def handle(record: ConsumerRecord[bytes, bytes]) -> None:
        report.started += 1
        await anyio.sleep(rng.uniform(0.01, 0.25))
        report.ends[record.partition, record.offset] += 1
        report.values[record.key].append(int(record.value or b""))

    async def live(number: int, begin: float, seconds: float) -> None:
        await anyio.sleep(begin)
        consumer = AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            connect=cluster.connect,
            rng=random.Random(seed * 100 + number),
            group_id="g",
            auto_offset_reset="earliest",
            **PROTOCOLS[protocol],
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave, consumer, seconds)
            await process(consumer, handle, order="key", concurrency=20, window=500, **options)

    async def leave(consumer: AsyncKafkaConsumer[Any, Any], seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while len(report.ends) < RECORDS:  # noqa: ASYNC110
                await anyio.sleep(0.2)
        consumer.wakeup()

    async with MemoryCluster(topics={"orders": 6}, seed=seed) as cluster:
        cluster.produce("orders", [(f"k{n % KEYS}", f"{n}") for n in range(RECORDS)])
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live, 0, 0.0, 1e6)
            for number in range(GUESTS):
                tasks.start_soon(live, number + 1, 1.0 + 1.5 * number, 2.0)
        report.seconds = anyio.current_time() - began
        committed = cluster.committed("g").values()
        report.committed = sum(at.offset for at in committed)
    return report


@contextmanager
def without_done_sets() -> Iterator[None]:
    """Let commits have no done set."""
    to_commit = Partition.to_commit

    def bare(partition: Partition, *, with_done: bool, longest: int) -> Any:
        return to_commit(partition, with_done=False, longest=longest)

    with patch.object(Partition, "to_commit", bare):
        yield


def main() -> None:
    print("| protocol | drain | done sets | handled twice | cancelled midway |")
    print("|---|---|---|---:|---:|")
    for protocol in PROTOCOLS:
        for drain, has_done_sets in ((0.0, False), (20.0, False), (0.0, True), (20.0, True)):
            with nullcontext() if has_done_sets else without_done_sets():
                reports = [run_fleet(seed, protocol, drain=drain) for seed in SEEDS]
            repeated, cancelled = (
                f"{min(numbers)} to {max(numbers)}"
                for numbers in (
                    [report.repeated for report in reports],
                    [report.cancelled for report in reports],
                )
            )
            cells = protocol, "yes" if drain else "no", "yes" if has_done_sets else "no"
            print("|", " | ".join((*cells, repeated, cancelled)), "|", flush=True)


if __name__ == "__main__":
    main()
