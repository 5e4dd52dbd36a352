"""Many consumers in one process that restart all the time, and a ledger of their records."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anyio
import anyio.abc

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition

POLL_MS = 500
TOPIC = "fleet"
STRATEGIES = ("range", "cooperative-sticky")
"""Assignors. Each has a group of sync consumers and a group of async consumers."""
LOOK_S = 0.02

Polled = Mapping[TopicPartition, Sequence[Any]]


class Ledger:
    """Offsets that one group read, as ranges. Its size does not grow with the records."""

    def __init__(self) -> None:
        self.records = self.duplicates = 0
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def add(self, polled: Polled) -> None:
        """Note the records of one poll. Their values have to be their offsets."""
        for partition, records in polled.items():
            offsets = [record.offset for record in records]
            first, after = offsets[0], offsets[-1] + 1
            assert offsets == list(range(first, after)), (partition, offsets)
            assert [int(record.value) for record in records] == offsets, partition
            with self._lock:
                self.note(partition.partition, first, after)

    def note(self, partition: int, first: int, after: int) -> None:
        """Note the offsets from ``first`` to before ``after``."""
        known = self._ranges.get(partition, [])
        joined, others = (first, after), []
        for start, end in known:
            if end < first or start > after:
                others.append((start, end))
            else:
                joined = min(joined[0], start), max(joined[1], end)
        ranges = sorted([*others, joined])
        new = sum(end - start for start, end in ranges) - sum(end - start for start, end in known)
        self._ranges[partition] = ranges
        self.records += new
        self.duplicates += after - first - new

    def missing(self, ends: Mapping[int, int]) -> dict[int, list[tuple[int, int]]]:
        """Return the ranges that were read, by partition, where these are not all up to the end."""
        return {
            partition: self._ranges.get(partition, [])
            for partition, end in ends.items()
            if self._ranges.get(partition, []) != ([(0, end)] if end else [])
        }


async def until(predicate: Callable[[], object]) -> None:
    """Wait until the predicate holds."""
    while True:
        if predicate():
            return
        await anyio.sleep(LOOK_S)


class Member(Protocol):
    """A consumer of the fleet."""

    async def end(self, *, abruptly: bool) -> None:
        """Close the consumer. ``abruptly`` omits the last commit."""


@dataclass
class Fleet:
    """The members' common settings, and the records that they read."""

    servers: str
    loop: anyio.abc.TaskGroup
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    engines: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """Engines of all consumers, also of closed ones that something still refers to."""

    def options(self, number: int) -> dict[str, Any]:
        """Return the options of this member. Numbers 0 and 4, for instance, share a group."""
        strategy = STRATEGIES[number // 2 % 2]
        group = f"{'sync' if number % 2 else 'async'}-{strategy}"
        self.ledgers.setdefault(group, Ledger())
        return {
            "bootstrap_servers": self.servers,
            "group_id": group,
            "client_id": f"member-{number}",
            "partition_assignment_strategy": strategy,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1000,
            # Without these options each fetch returns one record, and the fleet does nothing but
            # fetch.
            "fetch_min_bytes": 100_000,
            "fetch_max_wait_ms": 1000,
        }

    def start(self, number: int) -> Member:
        """Start a member. Members with odd numbers use the sync API."""
        return SyncMember(self, number) if number % 2 else AsyncMember(self, number)


class SyncMember:
    """A KafkaConsumer, polled in a thread."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._options = fleet.options(number)
        self._is_ending = self._is_abrupt = False
        self._thread = threading.Thread(target=self._run, name=f"member-{number}")
        self._thread.start()

    def _run(self) -> None:
        ledger = self._fleet.ledgers[self._options["group_id"]]
        consumer = KafkaConsumer(TOPIC, **self._options)
        self._fleet.engines.add(consumer._driver.engine)
        try:
            while not self._is_ending:
                ledger.add(consumer.poll(timeout_ms=POLL_MS))
        except BaseException as error:
            self._fleet.errors.append(error)
        finally:
            consumer.close(autocommit=not self._is_abrupt)

    async def end(self, *, abruptly: bool) -> None:
        self._is_ending, self._is_abrupt = True, abruptly
        await until(lambda: not self._thread.is_alive())


class AsyncMember:
    """An AsyncKafkaConsumer in a task."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self._fleet = fleet
        self._options = fleet.options(number)
        self._is_ending = False
        self._scope, self._ended = anyio.CancelScope(), anyio.Event()
        fleet.loop.start_soon(self._run)

    async def _run(self) -> None:
        ledger = self._fleet.ledgers[self._options["group_id"]]
        try:
            with self._scope:
                async with AsyncKafkaConsumer(TOPIC, **self._options) as consumer:
                    self._fleet.engines.add(consumer._driver.engine)
                    while not self._is_ending:
                        ledger.add(await consumer.poll(timeout_ms=POLL_MS))
        except Exception as error:
            self._fleet.errors.append(error)
        finally:
            self._ended.set()

    async def end(self, *, abruptly: bool) -> None:
        self._is_ending = True
        if abruptly:
            self._scope.cancel()
        await self._ended.wait()


class Sample(NamedTuple):
    """The resources of the process at one moment."""

    at: float
    """Seconds since the start of the fleet."""
    threads: int
    descriptors: int
    megabytes: float
    """Resident memory, in megabytes."""
    engines: int
    """Engines that are not freed."""
    restarts: int
    records: int
    """Records read by all groups, without duplicates."""
    duplicates: int


def sample(at: float, restarts: int, fleet: Fleet) -> Sample:
    """Read the figures of this process from ``/proc``, without a run of the garbage collector."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    ledgers = list(fleet.ledgers.values())
    return Sample(
        at,
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        len(fleet.engines),
        restarts,
        sum(each.records for each in ledgers),
        sum(each.duplicates for each in ledgers),
    )


def table(samples: Sequence[Sample], rows: int = 20) -> str:
    """Return at most this many samples as lines of text, the last sample included."""
    step = -(-len(samples) // rows)
    lines = [
        f"{'s':>5} {'threads':>8} {'fds':>6} {'MB':>7} {'engines':>8} {'restarts':>9} "
        f"{'records':>9} {'twice':>8}"
    ]
    for one in samples[::-1][::step][::-1]:
        lines.append(
            f"{one.at:5.0f} {one.threads:8} {one.descriptors:6} {one.megabytes:7.1f} "
            f"{one.engines:8} {one.restarts:9} {one.records:9} {one.duplicates:8}"
        )
    return "\n".join(lines)


@contextmanager
def broker(partitions: int) -> Iterator[str]:
    """Run ``kohort broker`` with the topic and yield its address."""
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0"]
    with subprocess.Popen(
        [*command, "--topic", f"{TOPIC}:{partitions}"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield next(word for word in process.stdout.readline().split() if "127.0.0.1:" in word)
        finally:
            process.terminate()


class Producers:
    """Processes that produce to separate partitions until they are stopped."""

    def __init__(self, servers: str, partitions: int, rate: int, count: int = 2) -> None:
        self._processes = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.consumer.engine.fleet_producer", servers, TOPIC),
                    *(str(number), str(partitions), str(count), str(rate // count)),
                ],
                stdin=subprocess.PIPE,
            )
            for number in range(count)
        ]

    def stop(self) -> None:
        """Stop the processes and check that the cluster acknowledged all records."""
        for process in self._processes:
            process.communicate(timeout=60)
            assert process.returncode == 0

    def kill(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.kill()
            process.communicate()
