"""Handling of all records of a topic in this process, each for as many ms as its value says.

    python -m benchmarks._processed WAY SERVERS TOPIC GROUP ORDER RECORDS

The output is a line of JSON. It has the seconds from the first record to the end of the last one,
and the CPU time of the process meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from benchmarks._measured import cpu_s, end
from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer
from kohort.processing import Batch, process

THREADS, TASKS, LOOP = "KafkaConsumer", "AsyncKafkaConsumer", "async for"
BATCHES, TABLES = "batch= with columns", "poll_arrow()"
CONCURRENCY = 100
ROWS = 5_000
"""Most rows of a table."""
WAIT_MS = 1000
Record = ConsumerRecord[bytes, bytes]


class Arguments(NamedTuple):
    """The arguments of this program, after the way."""

    servers: str
    topic: str
    group: str
    order: Any
    records: int

    def consumer(self, kind: Any) -> Any:
        return kind(
            self.topic,
            bootstrap_servers=self.servers,
            group_id=self.group,
            auto_offset_reset="earliest",
        )


class Meter:
    """Counter of records, which ends the process after the last one."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._began = self._cpu_s = 0.0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Note the first record."""
        if not self._began:
            self._began, self._cpu_s = time.perf_counter(), cpu_s()

    def count(self, records: int = 1) -> None:
        with self._lock:
            self._left -= records
            if self._left <= 0:
                end(seconds=time.perf_counter() - self._began, cpu_s=cpu_s() - self._cpu_s)

    def handle(self, record: Record) -> None:
        self.begin()
        if ms := int(record.value or 0):
            time.sleep(ms / 1000)
        self.count()

    async def handle_in_task(self, record: Record) -> None:
        self.begin()
        if ms := int(record.value or 0):
            await asyncio.sleep(ms / 1000)
        self.count()

    async def handle_table(self, table: Any) -> None:
        self.begin()
        self.count(len(table))


def in_threads(told: Arguments, meter: Meter) -> None:
    consumer = told.consumer(KafkaConsumer)
    process(consumer, meter.handle, order=told.order, concurrency=CONCURRENCY)


async def in_tasks(told: Arguments, meter: Meter) -> None:
    consumer = told.consumer(AsyncKafkaConsumer)
    await process(consumer, meter.handle_in_task, order=told.order, concurrency=CONCURRENCY)


async def in_loop(told: Arguments, meter: Meter) -> None:
    async with told.consumer(AsyncKafkaConsumer) as consumer:
        async for record in consumer:
            await meter.handle_in_task(record)


async def in_batches(told: Arguments, meter: Meter) -> None:
    consumer = told.consumer(AsyncKafkaConsumer)
    await process(consumer, meter.handle_table, batch=Batch(ROWS, columns=True))


async def in_tables(told: Arguments, meter: Meter) -> None:
    async with told.consumer(AsyncKafkaConsumer) as consumer:
        while True:
            table = await consumer.poll_arrow(timeout_ms=WAIT_MS, max_records=ROWS)
            if len(table):
                await meter.handle_table(table)


WAYS: dict[str, Callable[[Arguments, Meter], Coroutine[Any, Any, None]]] = {
    TASKS: in_tasks,
    LOOP: in_loop,
    BATCHES: in_batches,
    TABLES: in_tables,
}


def main() -> None:
    way, servers, topic, group, order, records = sys.argv[1:]
    told = Arguments(servers, topic, group, order, int(records))
    meter = Meter(told.records)
    if way == THREADS:
        in_threads(told, meter)
    else:
        asyncio.run(WAYS[way](told, meter))


if __name__ == "__main__":
    main()
