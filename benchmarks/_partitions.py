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
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, NoReturn

SYNC, ASYNC = "kohort", "kohort, asyncio"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "confluent-kafka", "aiokafka", "kafka-python"
BUSY, BACKLOG = "busy", "backlog"
WAIT_MS = 1000
CONFLUENT_RECORDS = 500


class Task(NamedTuple):
    """Partitions to assign, and the number of records to read from the first one."""

    way: str
    bootstrap_servers: str
    topic: str
    partitions: int
    records: int

    def keywords(self) -> dict[str, Any]:
        """Return the options of kohort, aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": f"g-{uuid.uuid4().hex[:8]}",
            "auto_offset_reset": "earliest",
        }


class Result(NamedTuple):
    """Measured seconds, CPU seconds, records, and the median latency in ms."""

    seconds: float
    cpu_s: float
    records: int
    p50_ms: float


class Meter:
    """Meter that receives every value. It is over when all records have arrived."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._came = 0
        self._began = self._cpu_s = 0.0
        self._latencies: list[float] = []
        self._warm = task.way == BUSY

    def take(self, values: Iterable[bytes | None]) -> None:
        """Take the values that a call returned. The first one starts the measurement."""
        now = time.time_ns()
        for value in values:
            if not self._began:
                self._began, self._cpu_s = time.perf_counter(), _cpu_s()
                if self._warm:
                    print("ready", flush=True)
                    continue
            self._came += 1
            if self._warm and value is not None:
                self._latencies.append((now - int(value)) / 1e6)

    @property
    def over(self) -> bool:
        return self._came >= self._task.records

    def result(self) -> Result:
        seconds = time.perf_counter() - self._began
        p50_ms = statistics.median(self._latencies) if self._latencies else 0.0
        return Result(seconds, _cpu_s() - self._cpu_s, self._came, p50_ms)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _poll(consumer: Any, meter: Meter) -> None:
    while not meter.over:
        for batch in consumer.poll(timeout_ms=WAIT_MS).values():
            meter.take([record.value for record in batch])


async def _poll_async(poll: Callable[..., Awaitable[Any]], meter: Meter) -> None:
    while not meter.over:
        for batch in (await poll(timeout_ms=WAIT_MS)).values():
            meter.take([record.value for record in batch])


def kohort_sync(task: Task, meter: Meter) -> None:
    import kohort

    consumer: Any = kohort.KafkaConsumer(**task.keywords())
    consumer.assign([kohort.TopicPartition(task.topic, n) for n in range(task.partitions)])
    _poll(consumer, meter)


def on_asyncio(read: Callable[[Task, Meter], Awaitable[None]]) -> Callable[[Task, Meter], None]:
    """Return a reader for the command that runs a coroutine."""

    async def ended(task: Task, meter: Meter) -> NoReturn:
        await read(task, meter)
        _end(meter)

    return lambda task, meter: asyncio.run(ended(task, meter))


async def kohort_async(task: Task, meter: Meter) -> None:
    import kohort

    consumer: Any = kohort.AsyncKafkaConsumer(**task.keywords())
    await consumer.start()
    consumer.assign([kohort.TopicPartition(task.topic, n) for n in range(task.partitions)])
    await _poll_async(consumer.poll, meter)


async def aiokafka(task: Task, meter: Meter) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer: Any = AIOKafkaConsumer(**task.keywords())
    await consumer.start()
    consumer.assign([TopicPartition(task.topic, n) for n in range(task.partitions)])
    await _poll_async(consumer.getmany, meter)


def kafka_python(task: Task, meter: Meter) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer: Any = KafkaConsumer(**task.keywords())
    consumer.assign([TopicPartition(task.topic, n) for n in range(task.partitions)])
    _poll(consumer, meter)


def confluent(task: Task, meter: Meter) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    options = {
        "bootstrap.servers": task.bootstrap_servers,
        "group.id": task.keywords()["group_id"],
        "auto.offset.reset": "earliest",
    }
    consumer: Any = Consumer(options)
    chosen = [TopicPartition(task.topic, n, OFFSET_BEGINNING) for n in range(task.partitions)]
    consumer.assign(chosen)
    # consume() returns late, at the end of its time-out, when there are fewer records.
    while not meter.over:
        if task.way == BUSY:
            message = consumer.poll(WAIT_MS / 1000)
            found = [] if message is None else [message]
        else:
            found = consumer.consume(CONFLUENT_RECORDS, WAIT_MS / 1000)
        if found:
            meter.take([message.value() for message in found])


READERS: dict[str, Callable[[Task, Meter], None]] = {
    SYNC: kohort_sync,
    ASYNC: on_asyncio(kohort_async),
    CONFLUENT: confluent,
    AIOKAFKA: on_asyncio(aiokafka),
    KAFKA_PYTHON: kafka_python,
}


def _end(meter: Meter) -> NoReturn:
    """Print the result and exit, because closing a client is not measured."""
    print(json.dumps(meter.result()._asdict()), flush=True)
    os._exit(0)


def main() -> None:
    name, way, bootstrap_servers, topic, partitions, records = sys.argv[1:]
    task = Task(way, bootstrap_servers, topic, int(partitions), int(records))
    meter = Meter(task)
    READERS[name](task, meter)
    _end(meter)


if __name__ == "__main__":
    main()
