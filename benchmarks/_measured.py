"""Consumers of one client that are measured, in this process.

    python -m benchmarks._measured TASK

TASK is a :class:`Task` as JSON. Each consumer is in a separate group and waits in calls of one
second. Further synchronous ones have a thread each, asynchronous ones a task. The first record is
in the topic before. The output is a line of JSON, and closing a client is not measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from benchmarks._consumers import WAIT_MS, WAYS, Ask, Way

IDLE_SETTLE_S = 2.0
"""Seconds for the second fetch and the first commit of each consumer, which are not counted."""
MODERATE_SETTLE_S = 1.5
STAMP_BYTES = 8
Take = Callable[[Any], None]
"""Function that takes the values that a call returned."""


class Task(NamedTuple):
    """Measurement of a way to read: ``meter`` is idle, first, received or moderate."""

    meter: str
    way: str
    bootstrap_servers: str
    topic: str
    records: int = 1
    seconds: float = 0.0
    consumers: int = 1
    partitions: int = 0
    """Number of partitions to assign. 0 subscribes to the topic."""
    wait_ms: int = WAIT_MS


class Idle:
    """Cost of consumers that have nothing to read, after all of them had the first record.

    ``cpu_percent`` is of a core. ``ready_ms`` is the time until all consumers had a record.
    """

    def __init__(self, task: Task) -> None:
        self._left = task.consumers
        self._seconds = task.seconds
        self._lock = threading.Lock()
        self._all_ready = threading.Event()
        self._began = time.monotonic()
        threading.Thread(target=self._measure, daemon=True).start()

    def take_of_one(self) -> Take:
        """Return the function for one more consumer."""
        is_ready = False

        def take(values: Any) -> None:
            nonlocal is_ready
            if len(values) and not is_ready:
                is_ready = True
                with self._lock:
                    self._left -= 1
                if not self._left:
                    self._all_ready.set()

        return take

    def _measure(self) -> None:
        self._all_ready.wait()
        ready_ms = (time.monotonic() - self._began) * 1000
        time.sleep(IDLE_SETTLE_S if self._seconds else 0)
        began, cpu, switches = time.monotonic(), cpu_s(), wakeups()
        time.sleep(self._seconds)
        seconds = max(time.monotonic() - began, 1e-6)
        end(
            cpu_percent=(cpu_s() - cpu) / seconds * 100,
            switches_per_s=(wakeups() - switches) / seconds,
            mb=resident_mb(),
            ready_ms=ready_ms,
        )


class First:
    """Time and CPU time from the constructor to the first record, and the memory at the end.

    ``seconds`` is the time from the first record to the last. ``mb`` is the resident memory after
    that and a second of waiting, less that before the constructor.
    """

    def __init__(self, task: Task) -> None:
        self._left = task.records
        self._mb = resident_mb()
        self._began, self._cpu_s = time.perf_counter(), cpu_s()
        self._first = self._last = self._first_cpu_s = 0.0

    def take(self, values: Any) -> None:
        if self._left <= 0:
            end(
                record_ms=(self._first - self._began) * 1000,
                cpu_ms=(self._first_cpu_s - self._cpu_s) * 1000,
                seconds=self._last - self._first,
                mb=resident_mb() - self._mb,
            )
        if len(values):
            self._last = time.perf_counter()
            if not self._first:
                self._first, self._first_cpu_s = self._last, cpu_s()
            self._left -= len(values)


class Received:
    """Arrival of each record after the first one, in monotonic ns, and the cost meanwhile.

    It prints "ready" when the first record has come.
    """

    def __init__(self, task: Task) -> None:
        self._records = task.records
        self._at_ns: list[int] = []
        self._began = self._cpu_s = 0.0
        self._polls = 0

    def take(self, values: Any) -> None:
        self._polls += 1
        if not len(values):
            return
        now = time.monotonic_ns()
        if not self._began:
            self._began, self._cpu_s, self._polls = time.monotonic(), cpu_s(), 0
            print("ready", flush=True)
            return
        self._at_ns += [now] * len(values)
        if len(self._at_ns) >= self._records:
            seconds = time.monotonic() - self._began
            cpu = cpu_s() - self._cpu_s
            end(at_ns=self._at_ns, cpu_s=cpu, seconds=seconds, polls_per_s=self._polls / seconds)


class Moderate:
    """CPU, wake-ups and latency of records whose values begin with their time in monotonic ns.

    The process counts for ``seconds``, which begin ``MODERATE_SETTLE_S`` after the first record.
    The latencies are computed at the end, so that they cost no CPU.
    """

    def __init__(self, task: Task) -> None:
        self._seconds = task.seconds
        self._first_ns: int | None = None
        self._begin_ns = self._end_ns = 1 << 62
        self._before = (0.0, 0)
        self._came: list[tuple[int, Any]] = []

    def take(self, values: Any) -> None:
        if not len(values):
            return
        now = time.monotonic_ns()
        if now >= self._begin_ns:
            self._came.append((now, values))
            if now >= self._end_ns:
                self._finish(now)
        elif self._first_ns is None:
            self._first_ns = now
        elif now - self._first_ns >= MODERATE_SETTLE_S * 1e9:
            self._begin_ns, self._end_ns = now, now + int(self._seconds * 1e9)
            self._before = cpu_s(), wakeups()

    def _finish(self, now: int) -> NoReturn:
        cpu, woken = cpu_s() - self._before[0], wakeups() - self._before[1]
        ms: list[float] = []
        for at, values in self._came:
            each: list[bytes] = values if isinstance(values, list) else values.to_pylist()
            ms += [(at - int.from_bytes(value[:STAMP_BYTES], "big")) / 1e6 for value in each]
        ms.sort()
        seconds = (now - self._begin_ns) / 1e9
        end(
            records=len(ms),
            calls=len(self._came),
            cpu_us=cpu / len(ms) * 1e6,
            wakeups_per_s=woken / seconds,
            p50_ms=ms[len(ms) // 2],
            p99_ms=ms[len(ms) * 99 // 100],
        )


def takes_of(task: Task) -> list[Take]:
    """Return the function that takes what a consumer returns, for each consumer."""
    if task.meter == "idle":
        idle = Idle(task)
        return [idle.take_of_one() for _ in range(task.consumers)]
    kinds: dict[str, Any] = {"first": First, "received": Received, "moderate": Moderate}
    return [kinds[task.meter](task).take]


def cpu_s() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def wakeups() -> int:
    """Return the number of times that a thread of this process has waited and was woken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def resident_mb(field: str = "VmRSS") -> float:
    """Return the resident memory of this process in MB. Its peak is the field VmHWM."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def end(**result: Any) -> NoReturn:
    """Print the result and exit."""
    print(json.dumps(result), flush=True)
    os._exit(0)


def read(way: Way, ask: Ask, take: Take, wait_ms: int) -> None:
    """Read forever."""
    consumer = way.open(ask)
    while True:
        take(way.all_values(way.poll(consumer, wait_ms)))


async def read_async(way: Way, ask: Ask, take: Take) -> None:
    """Read forever."""
    consumer = await way.start(ask)
    while True:
        take(way.all_values(await way.poll(consumer, WAIT_MS)))


async def read_all_async(way: Way, asks: list[Ask], takes: list[Take]) -> None:
    await asyncio.gather(*(read_async(way, *each) for each in zip(asks, takes, strict=True)))


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    way = WAYS[task.way]
    way.load()
    takes = takes_of(task)
    group = f"g-{os.urandom(4).hex()}"
    # A meter of records that arrive reads from the end of a topic that has others.
    reset = "latest" if task.meter == "moderate" else "earliest"
    asks = [
        Ask(task.bootstrap_servers, task.topic, f"{group}-{number}", task.partitions, reset)
        for number in range(len(takes))
    ]
    if way.is_async:
        asyncio.run(read_all_async(way, asks, takes))
    for ask, take in zip(asks[1:], takes[1:], strict=True):
        arguments = way, ask, take, task.wait_ms
        threading.Thread(target=read, args=arguments, daemon=True).start()
    read(way, asks[0], takes[0], task.wait_ms)


if __name__ == "__main__":
    main()
