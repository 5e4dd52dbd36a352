"""One client reads a topic to its end, as the only member of a new group, in this process.

    python -m benchmarks._read CLIENT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS

Prints what it took as JSON. The clock runs from the first record received to the last, CPU counts
from behind the imports. Every client reads all four fields of every record, commits automatically
and checks CRCs. Each is its library's documented loop with default options, but for what its
name tells.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from benchmarks import _names as names

WAIT_MS = 1000
CONFLUENT_RECORDS = 500


class Ask(NamedTuple):
    """What to read."""

    bootstrap_servers: str
    topic: str
    group: str
    records: int

    def keywords(self) -> dict[str, Any]:
        """As options of kohort, aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": True,
            "check_crcs": True,
        }


class Reading(NamedTuple):
    """``total``: of all fields, see ``_topics.checksum``; CPU in seconds, ``peak_mb`` resident."""

    records: int
    total: int
    seconds: float
    cpu_s: float
    peak_mb: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of each record."""
        return self.cpu_s / self.records * 1e6


class Meter:
    """Made when all is imported, told of every batch that comes."""

    def __init__(self) -> None:
        self._cpu_s = _cpu_s()
        self._began = 0.0

    def came(self) -> None:
        if not self._began:
            self._began = time.perf_counter()

    def reading(self, records: int, total: int) -> Reading:
        seconds = time.perf_counter() - self._began
        cpu_s = _cpu_s() - self._cpu_s
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert peak is not None
        return Reading(records, total, seconds, cpu_s, int(peak[1]) / 1000)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _touch(records: Iterable[Any]) -> int:
    """Read all four fields."""
    total = 0
    for record in records:
        total += len(record.key) + len(record.value) + record.offset + record.timestamp
    return total


def _polled(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    records = total = 0
    while records < ask.records:
        for batch in consumer.poll(timeout_ms=WAIT_MS).values():
            meter.came()
            records += len(batch)
            total += _touch(batch)
    return meter.reading(records, total)


async def _got(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    records = total = 0
    while records < ask.records:
        for batch in (await consumer.getmany(timeout_ms=WAIT_MS)).values():
            meter.came()
            records += len(batch)
            total += _touch(batch)
    return meter.reading(records, total)


async def _iterated(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    records = total = 0
    async for record in consumer:
        if not records:
            meter.came()
        records += 1
        total += len(record.key) + len(record.value) + record.offset + record.timestamp
        if records == ask.records:
            break
    return meter.reading(records, total)


def kohort_poll(ask: Ask) -> Reading:
    import kohort

    meter = Meter()
    with kohort.KafkaConsumer(ask.topic, **ask.keywords()) as consumer:
        return _polled(meter, consumer, ask)


def kohort_iterated(ask: Ask) -> Reading:
    import kohort

    meter = Meter()
    records = total = 0
    consumer: Any
    with kohort.KafkaConsumer(ask.topic, **ask.keywords()) as consumer:
        for record in consumer:
            if not records:
                meter.came()
            records += 1
            total += len(record.key) + len(record.value) + record.offset + record.timestamp
            if records == ask.records:
                break
        return meter.reading(records, total)


def kohort_async(
    read: Callable[[Meter, Any, Ask], Awaitable[Reading]],
) -> Callable[[Ask], Reading]:
    def run(ask: Ask) -> Reading:
        import kohort

        async def main() -> Reading:
            async with kohort.AsyncKafkaConsumer(ask.topic, **ask.keywords()) as consumer:
                return await read(meter, consumer, ask)

        meter = Meter()
        return asyncio.run(main())

    return run


def kohort_arrow(ask: Ask) -> Reading:
    import pyarrow
    import pyarrow.compute as compute

    import kohort

    meter = Meter()
    records = total = 0
    consumer: Any
    with kohort.KafkaConsumer(ask.topic, **ask.keywords()) as consumer:
        while records < ask.records:
            batch = consumer.poll_arrow(timeout_ms=WAIT_MS)
            if not batch.num_rows:
                continue
            meter.came()
            records += batch.num_rows
            stamps = batch.column("timestamp")
            a_ms = {"ms": 1, "us": 1000}[stamps.type.unit]
            numbers = stamps.view(pyarrow.int64())
            # The sum of what is above the first does not overflow. (With a number of Python's in
            # place of the scalar, pyarrow would look for pandas, and import it.)
            first = numbers[0]
            above = compute.sum(compute.subtract(numbers, first)).as_py()
            total += (above + first.as_py() * batch.num_rows) // a_ms
            total += compute.sum(batch.column("offset")).as_py()
            for name in ("key", "value"):
                total += compute.sum(compute.binary_length(batch.column(name))).as_py()
        return meter.reading(records, total)


def confluent(**more: Any) -> Callable[[Ask], Reading]:
    def run(ask: Ask) -> Reading:
        from confluent_kafka import Consumer

        meter = Meter()
        records = total = 0
        options = {
            "bootstrap.servers": ask.bootstrap_servers,
            "group.id": ask.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "check.crcs": True,
            **more,
        }
        consumer: Any = Consumer(options)
        consumer.subscribe([ask.topic])
        while records < ask.records:
            batch = consumer.consume(CONFLUENT_RECORDS, WAIT_MS / 1000)
            if not batch:
                continue
            meter.came()
            records += len(batch)
            for message in batch:
                total += len(message.key()) + len(message.value())
                total += message.offset() + message.timestamp()[1]
        return meter.reading(records, total)

    return run


def aiokafka(
    read: Callable[[Meter, Any, Ask], Awaitable[Reading]],
) -> Callable[[Ask], Reading]:
    def run(ask: Ask) -> Reading:
        from aiokafka import AIOKafkaConsumer

        async def main() -> Reading:
            consumer = AIOKafkaConsumer(ask.topic, **ask.keywords())
            await consumer.start()
            return _over(await read(meter, consumer, ask))  # stop() may take its time

        meter = Meter()
        return asyncio.run(main())

    return run


def kafka_python(ask: Ask) -> Reading:
    from kafka import KafkaConsumer

    meter = Meter()
    return _polled(meter, KafkaConsumer(ask.topic, **ask.keywords()), ask)


READERS: dict[str, Callable[[Ask], Reading]] = {
    names.RECORDS: kohort_poll,
    names.ITERATION: kohort_iterated,
    names.GETMANY: kohort_async(_got),
    names.ASYNC_FOR: kohort_async(_iterated),
    names.PURE: kohort_poll,
    names.ARROW: kohort_arrow,
    names.CONFLUENT: confluent(),
    names.TUNED: confluent(**{"fetch.queue.backoff.ms": 1}),
    names.AIOKAFKA: aiokafka(_got),
    names.AIOKAFKA_FOR: aiokafka(_iterated),
    names.KAFKA_PYTHON: kafka_python,
}


def _over(reading: Reading) -> NoReturn:
    """Print it and be gone: how a client closes is not measured."""
    print(json.dumps(reading._asdict()), flush=True)
    os._exit(0)


def main() -> None:
    name, bootstrap_servers, topic, group, records = sys.argv[1:]
    _over(READERS[name](Ask(bootstrap_servers, topic, group, int(records))))


if __name__ == "__main__":
    main()
