"""Memory of a consumer that has read a topic to its end and waits, in this process.

    python -m benchmarks._keeping CLIENT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS

The output is a line of JSON: resident MB after the last record and a second of waiting, less those
before the consumer was created.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib import import_module

from benchmarks._consumers import ASYNC, SYNC, Ask, module_of
from benchmarks._idling import resident_mb

WAIT_MS = 1000


def main() -> None:
    client, bootstrap_servers, topic, group, records = sys.argv[1:]
    import_module(module_of(client))
    before, left = resident_mb(), int(records)
    ask = Ask(bootstrap_servers, topic, group)

    def over() -> None:
        print(json.dumps({"mb": resident_mb() - before}), flush=True)
        os._exit(0)

    async def run() -> None:
        nonlocal left
        consumer = ASYNC[client](ask)
        await consumer.start()
        while left > 0:
            left -= len(await consumer.poll(WAIT_MS))
        await consumer.poll(WAIT_MS)
        over()

    if client in ASYNC:
        asyncio.run(run())
    consumer = SYNC[client](ask)
    while left > 0:
        left -= len(consumer.poll(WAIT_MS))
    consumer.poll(WAIT_MS)
    over()


if __name__ == "__main__":
    main()
