"""One client that receives records as they are produced, in this process.

    python -m benchmarks._receiving CLIENT HOW BOOTSTRAP_SERVERS TOPIC GROUP RECORDS

HOW is "wait" for calls that wait for a record, or "spin" for poll(timeout_ms=0) in a loop. The
topic has one record at first. The process prints "ready" when it has that, and after RECORDS more a
line of JSON. The line has the arrival of each in monotonic ns, CPU seconds, and polls a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from typing import NamedTuple

from benchmarks._consumers import ASYNC, SYNC, Ask, AsyncConsumer, Consumer

WAIT_MS = 1000


class Received(NamedTuple):
    """Result. ``at_ns`` has the time at which the call with each record returned."""

    at_ns: list[int]
    cpu_s: float
    polls_per_s: float


class Meter:
    """Meter that counts from the first record on."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._at_ns: list[int] = []
        self._begun = self._cpu_s = 0.0
        self._polls = 0

    def polled(self, values: list[bytes]) -> bool:
        """Take the values that a call returned. Return True when all records have arrived."""
        self._polls += 1
        if not values:
            return False
        now = time.monotonic_ns()
        if not self._begun:
            self._begun, self._cpu_s, self._polls = time.monotonic(), cpu_s(), 0
            print("ready", flush=True)
            return False
        self._at_ns += [now] * len(values)
        return len(self._at_ns) >= self._records

    def received(self) -> Received:
        seconds = time.monotonic() - self._begun
        return Received(self._at_ns, cpu_s() - self._cpu_s, self._polls / seconds)


def cpu_s() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def receive(consumer: Consumer, meter: Meter, wait_ms: int) -> None:
    while not meter.polled(consumer.poll(wait_ms)):
        pass


async def receive_async(consumer: AsyncConsumer, meter: Meter) -> None:
    await consumer.start()
    while not meter.polled(await consumer.poll(WAIT_MS)):
        pass


def main() -> None:
    client, how, bootstrap_servers, topic, group, records = sys.argv[1:]
    ask = Ask(bootstrap_servers, topic, group)
    meter = Meter(int(records))

    async def run() -> None:
        await receive_async(ASYNC[client](ask), meter)
        over(meter)

    if client in ASYNC:
        asyncio.run(run())
    receive(SYNC[client](ask), meter, 0 if how == "spin" else WAIT_MS)
    over(meter)


def over(meter: Meter) -> None:
    """Print the result and end the process, because closing is not measured."""
    print(json.dumps(meter.received()._asdict()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
