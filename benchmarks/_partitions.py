"""One client with many partitions assigned and records in one of them, in this process.

    python -m benchmarks._partitions CLIENT WAY BOOTSTRAP_SERVERS TOPIC PARTITIONS RECORDS

The way is ``busy`` or ``backlog``. ``busy`` prints "ready" after the first record and then measures
RECORDS more. It takes the CPU time, and the time from the producer's clock in each value to the
return of the record. ``backlog`` measures the rate from the first record to the last. Both print
JSON. Each client has a group, commits automatically and has default options otherwise.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import time
import uuid
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from benchmarks._consumers import ASYNC, SYNC, Ask

BUSY, BACKLOG = "busy", "backlog"
WAIT_MS = 1000
CONFLUENT_RECORDS = 500


class Result(NamedTuple):
    """Measured seconds, CPU seconds, records, and the median latency in ms."""

    seconds: float
    cpu_s: float
    records: int
    p50_ms: float


class Meter:
    """Meter that receives every value. It is over when all records have arrived."""

    def __init__(self, way: str, records: int) -> None:
        self._records = records
        self._came = 0
        self._began = self._cpu_s = 0.0
        self._latencies: list[float] = []
        self._warm = way == BUSY

    def take(self, values: Iterable[bytes]) -> None:
        """Take the values that a call returned. The first one starts the measurement."""
        now = time.time_ns()
        for value in values:
            if not self._began:
                self._began, self._cpu_s = time.perf_counter(), _cpu_s()
                if self._warm:
                    print("ready", flush=True)
                    continue
            self._came += 1
            if self._warm:
                self._latencies.append((now - int(value)) / 1e6)

    @property
    def over(self) -> bool:
        return self._came >= self._records

    def end(self) -> NoReturn:
        """Print the result and exit, because closing a client is not measured."""
        seconds = time.perf_counter() - self._began
        p50_ms = statistics.median(self._latencies) if self._latencies else 0.0
        result = Result(seconds, _cpu_s() - self._cpu_s, self._came, p50_ms)
        print(json.dumps(result._asdict()), flush=True)
        os._exit(0)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    client, way, bootstrap_servers, topic, partitions, records = sys.argv[1:]
    batch = CONFLUENT_RECORDS if way == BACKLOG else 1
    ask = Ask(bootstrap_servers, topic, f"g-{uuid.uuid4().hex[:8]}", int(partitions), batch)
    meter = Meter(way, int(records))

    async def run() -> None:
        consumer = ASYNC[client](ask)
        await consumer.start()
        while not meter.over:
            meter.take(await consumer.poll(WAIT_MS))
        meter.end()

    if client in ASYNC:
        asyncio.run(run())
    consumer = SYNC[client](ask)
    while not meter.over:
        meter.take(consumer.poll(WAIT_MS))
    meter.end()


if __name__ == "__main__":
    main()
