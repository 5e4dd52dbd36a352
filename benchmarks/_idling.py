"""Consumers of one client that have nothing to read, in this process.

    python -m benchmarks._idling CLIENT BOOTSTRAP_SERVERS TOPIC GROUP CONSUMERS SECONDS

Each consumer is in a separate group and waits in calls of one second. A synchronous one has a
separate thread, an asynchronous one a task. The topic has one record. CPU and context switches are
counted for SECONDS after all consumers have had that. ``ready_ms`` is the time until then. The
output is a line of JSON.
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
from pathlib import Path
from typing import NamedTuple

from benchmarks._consumers import ASYNC, SYNC, Ask, load

WAIT_MS = 1000
SETTLE_S = 2.0
"""Seconds for the second fetch and the first commit of each consumer, which are not counted."""


class Idling(NamedTuple):
    """CPU in percent of a core, context switches a second, resident MB of the process."""

    cpu_percent: float
    switches_per_s: float
    mb: float
    ready_ms: float
    """Milliseconds until each consumer had its first record."""


class Meter:
    """Meter that waits until all consumers are ready."""

    def __init__(self, consumers: int, seconds: float) -> None:
        self._left = consumers
        self._seconds = seconds
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self.all_ready = threading.Event()

    def ready(self) -> None:
        """Count one more consumer that has had the first record."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self.all_ready.set()

    def measure(self) -> None:
        """Count while no records arrive, print the result and end the process."""
        self.all_ready.wait()
        ready_ms = (time.monotonic() - self._begun) * 1000
        time.sleep(SETTLE_S if self._seconds else 0)
        before, begun = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        time.sleep(self._seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = max(time.monotonic() - begun, 1e-6)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        switches = after.ru_nvcsw - before.ru_nvcsw
        result = Idling(cpu / seconds * 100, switches / seconds, resident_mb(), ready_ms)
        print(json.dumps(result._asdict()), flush=True)
        os._exit(0)


def resident_mb() -> float:
    """Return the resident memory of this process in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


def idle(client: str, ask: Ask, meter: Meter) -> None:
    """Wait with a synchronous consumer, forever."""
    consumer = SYNC[client](ask)
    ready = False
    while True:
        if consumer.poll(WAIT_MS) and not ready:
            ready = True
            meter.ready()


async def idle_async(client: str, ask: Ask, meter: Meter) -> None:
    """Wait with an asynchronous consumer, forever."""
    consumer = ASYNC[client](ask)
    await consumer.start()
    ready = False
    while True:
        if await consumer.poll(WAIT_MS) and not ready:
            ready = True
            meter.ready()


async def all_async(client: str, asks: list[Ask], meter: Meter) -> None:
    await asyncio.gather(*(idle_async(client, ask, meter) for ask in asks))


def main() -> None:
    client, bootstrap_servers, topic, group, consumers, seconds = sys.argv[1:]
    load(client)
    asks = [Ask(bootstrap_servers, topic, f"{group}-{n}") for n in range(int(consumers))]
    meter = Meter(len(asks), float(seconds))
    threading.Thread(target=meter.measure, daemon=True).start()
    if client in ASYNC:
        asyncio.run(all_async(client, asks, meter))
    for ask in asks:
        threading.Thread(target=idle, args=(client, ask, meter), daemon=True).start()
    meter.all_ready.wait()
    time.sleep(3600)


if __name__ == "__main__":
    main()
