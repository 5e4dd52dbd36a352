"""First record of one consumer in a new group, in this process.

    python -m benchmarks._first CLIENT BOOTSTRAP_SERVERS TOPIC GROUP

The output is a line of JSON: milliseconds of the import, and from the constructor to the first
record.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from importlib import import_module
from typing import NamedTuple

from benchmarks._consumers import ASYNC, KOHORT, KOHORT_ASYNC, SYNC, Ask, module_of

CLASSES = {KOHORT: "KafkaConsumer", KOHORT_ASYNC: "AsyncKafkaConsumer"}


class First(NamedTuple):
    """Figures in milliseconds. The CPU time of the import is that of the process."""

    import_ms: float
    record_ms: float


def main() -> None:
    client, bootstrap_servers, topic, group = sys.argv[1:]
    begun = time.perf_counter()
    module = import_module(module_of(client))
    if client in CLASSES:
        getattr(module, CLASSES[client])  # kohort imports a class on first use
    imported = time.perf_counter()
    ask = Ask(bootstrap_servers, topic, group)

    def over() -> None:
        ended = time.perf_counter()
        first = First((imported - begun) * 1000, (ended - imported) * 1000)
        print(json.dumps(first._asdict()), flush=True)
        os._exit(0)

    async def run() -> None:
        consumer = ASYNC[client](ask)
        await consumer.start()
        while not await consumer.poll(1000):
            pass
        over()

    if client in ASYNC:
        asyncio.run(run())
    consumer = SYNC[client](ask)
    while not consumer.poll(1000):
        pass
    over()


if __name__ == "__main__":
    main()
