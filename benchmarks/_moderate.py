"""One client that reads a topic while records arrive at a moderate rate, in this process.

    python -m benchmarks._moderate WAY BOOTSTRAP_SERVERS TOPIC GROUP SECONDS

The value of each record begins with the time of its produce() in monotonic ns. The process reads
from the end of the topic, with the default options of its client. It counts for SECONDS, which
begin after ``SETTLE_S``, and prints a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

from benchmarks._receiving import cpu_s

WAIT_MS = 1000
SETTLE_S = 1.5
STAMP_BYTES = 8

POLL, ITERATION, ARROW = "kohort poll()", "kohort iteration", "kohort poll_arrow()"
ASYNC_POLL, ASYNC_FOR = "kohort async poll()", "kohort async for"
CONSUME, CONFLUENT_POLL = "confluent-kafka consume(500, 0.1)", "confluent-kafka poll()"
GETMANY, AIOKAFKA_FOR = "aiokafka getmany()", "aiokafka async for"


class Moderate(NamedTuple):
    """Result: CPU and wake-ups of the process, and the latency of its records."""

    records: int
    calls: int
    seconds: float
    cpu_s: float
    wakeups: int
    p50_ms: float
    p99_ms: float


class Meter:
    """Meter of one reading. It computes the latencies at the end, so that they cost no CPU."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._first_ns: int | None = None
        self._begin_ns = self._end_ns = 1 << 62
        self._before = (0.0, 0)
        self._came: list[tuple[int, Any]] = []

    def came(self, values: Any) -> None:
        """Take the values that one call returned. At the end, print the result and exit."""
        now = time.monotonic_ns()
        if now >= self._begin_ns:
            self._came.append((now, values))
            if now >= self._end_ns:
                self._finish(now)
        elif self._first_ns is None:
            self._first_ns = now
        elif now - self._first_ns >= SETTLE_S * 1e9:
            self._begin_ns, self._end_ns = now, now + int(self._seconds * 1e9)
            self._before = cpu_s(), wakeups()

    def _finish(self, now: int) -> NoReturn:
        cpu, woken = cpu_s() - self._before[0], wakeups() - self._before[1]
        ms: list[float] = []
        for at, values in self._came:
            each: Iterable[bytes] = values if isinstance(values, list) else values.to_pylist()
            ms += [(at - int.from_bytes(value[:STAMP_BYTES], "big")) / 1e6 for value in each]
        ms.sort()
        seconds = (now - self._begin_ns) / 1e9
        p50, p99 = ms[len(ms) // 2], ms[len(ms) * 99 // 100]
        result = Moderate(len(ms), len(self._came), seconds, cpu, woken, p50, p99)
        print(json.dumps(result._asdict()), flush=True)
        os._exit(0)  # closing a client is not measured


def wakeups() -> int:
    """Return the number of times that a thread of this process has waited and was woken."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


class Ask(NamedTuple):
    """Topic to read, in a new group."""

    bootstrap_servers: str
    topic: str
    group: str

    def keywords(self) -> dict[str, Any]:
        """Return the options for kohort and aiokafka."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "latest",
        }


def _values(polled: Any) -> list[bytes]:
    return [record.value for batch in polled.values() for record in batch]


def kohort_poll(ask: Ask, meter: Meter) -> None:
    import kohort

    consumer: Any = kohort.KafkaConsumer(ask.topic, **ask.keywords())
    while True:
        if polled := consumer.poll(timeout_ms=WAIT_MS):
            meter.came(_values(polled))


def kohort_iteration(ask: Ask, meter: Meter) -> None:
    import kohort

    for record in kohort.KafkaConsumer(ask.topic, **ask.keywords()):
        meter.came([record.value])


def kohort_arrow(ask: Ask, meter: Meter) -> None:
    import kohort

    consumer: Any = kohort.KafkaConsumer(ask.topic, **ask.keywords())
    while True:
        if (table := consumer.poll_arrow(timeout_ms=WAIT_MS)).num_rows:
            meter.came(table.column("value"))


def kohort_async_poll(ask: Ask, meter: Meter) -> None:
    import kohort

    async def main() -> None:
        async with kohort.AsyncKafkaConsumer(ask.topic, **ask.keywords()) as consumer:
            while True:
                if polled := await consumer.poll(timeout_ms=WAIT_MS):
                    meter.came(_values(polled))

    asyncio.run(main())


def kohort_async_for(ask: Ask, meter: Meter) -> None:
    import kohort

    async def main() -> None:
        consumer: Any
        async with kohort.AsyncKafkaConsumer(ask.topic, **ask.keywords()) as consumer:
            async for record in consumer:
                meter.came([record.value])

    asyncio.run(main())


def _confluent(ask: Ask) -> Any:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": ask.bootstrap_servers,
            "group.id": ask.group,
            "auto.offset.reset": "latest",
        }
    )
    consumer.subscribe([ask.topic])
    return consumer


def confluent_consume(ask: Ask, meter: Meter) -> None:
    consumer = _confluent(ask)
    while True:
        if messages := consumer.consume(500, 0.1):
            meter.came([message.value() for message in messages if not message.error()])


def confluent_poll(ask: Ask, meter: Meter) -> None:
    consumer = _confluent(ask)
    while True:
        if (message := consumer.poll(WAIT_MS / 1000)) is not None and not message.error():
            meter.came([message.value()])


def aiokafka_getmany(ask: Ask, meter: Meter) -> None:
    import aiokafka

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(ask.topic, **ask.keywords())
        await consumer.start()
        while True:
            if polled := await consumer.getmany(timeout_ms=WAIT_MS):
                meter.came(_values(polled))

    asyncio.run(main())


def aiokafka_for(ask: Ask, meter: Meter) -> None:
    import aiokafka

    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(ask.topic, **ask.keywords())
        await consumer.start()
        async for record in consumer:
            meter.came([record.value])

    asyncio.run(main())


READERS: dict[str, Callable[[Ask, Meter], None]] = {
    POLL: kohort_poll,
    ITERATION: kohort_iteration,
    ARROW: kohort_arrow,
    ASYNC_POLL: kohort_async_poll,
    ASYNC_FOR: kohort_async_for,
    CONSUME: confluent_consume,
    CONFLUENT_POLL: confluent_poll,
    GETMANY: aiokafka_getmany,
    AIOKAFKA_FOR: aiokafka_for,
}


def main() -> None:
    way, bootstrap_servers, topic, group, seconds = sys.argv[1:]
    READERS[way](Ask(bootstrap_servers, topic, group), Meter(float(seconds)))


if __name__ == "__main__":
    main()
