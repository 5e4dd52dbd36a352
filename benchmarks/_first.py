"""First record of one consumer in a new group, and its memory at the end, in this process.

    python -m benchmarks._first CLIENT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS

The output is a line of JSON. ``record_ms`` is the time from the constructor to the first record,
and ``cpu_ms`` the CPU time of the process in it.
``mb`` is the resident memory after the last record and a second of waiting, less that before the
constructor.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import NoReturn

from benchmarks._consumers import ASYNC, SYNC, Ask, load
from benchmarks._idling import WAIT_MS, resident_mb


class Meter:
    """Meter that receives the number of records of each call."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._before = resident_mb()
        self._began, self._began_cpu = time.perf_counter(), time.process_time()
        self._record_ms = self._cpu_ms = 0.0

    def is_over(self, records: int) -> bool:
        """Count the records of a call. Return True after the last one."""
        if records and not self._record_ms:
            self._record_ms = (time.perf_counter() - self._began) * 1000
            self._cpu_ms = (time.process_time() - self._began_cpu) * 1000
        self._left -= records
        return self._left <= 0

    def end(self) -> NoReturn:
        """Print the result and exit, because closing a client is not measured."""
        mb = resident_mb() - self._before
        result = {"record_ms": self._record_ms, "cpu_ms": self._cpu_ms, "mb": mb}
        print(json.dumps(result), flush=True)
        os._exit(0)


def main() -> None:
    client, bootstrap_servers, topic, group, records = sys.argv[1:]
    load(client)
    ask = Ask(bootstrap_servers, topic, group)
    meter = Meter(int(records))

    async def run() -> None:
        consumer = ASYNC[client](ask)
        await consumer.start()
        while not meter.is_over(len(await consumer.poll(WAIT_MS))):
            pass
        await consumer.poll(WAIT_MS)
        meter.end()

    if client in ASYNC:
        asyncio.run(run())
    consumer = SYNC[client](ask)
    while not meter.is_over(len(consumer.poll(WAIT_MS))):
        pass
    consumer.poll(WAIT_MS)
    meter.end()


if __name__ == "__main__":
    main()
