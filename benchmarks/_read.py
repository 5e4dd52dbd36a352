"""Reading of a topic to its end, by the only member of a new group, in this process.

    python -m benchmarks._read CLIENT BOOTSTRAP_SERVERS TOPIC GROUP RECORDS

The output is JSON. Wall and CPU time count from the first record received to the last, so that
imports and the start of a consumer do not count. Every client reads all four fields of every
record, commits automatically and checks CRCs. Each client runs the documented loop of its library
with default options, except for the options in its name. The anchors (``_anchors``) have no group
and do not commit.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from benchmarks import _anchors as anchors
from benchmarks import _names as names
from benchmarks._reading import Ask, Meter, Reading, cafile, touch, touch_table

WAIT_MS = 1000
CONFLUENT_RECORDS = 500


def _polled(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    records = total = 0
    while records < ask.records:
        for batch in consumer.poll(timeout_ms=WAIT_MS).values():
            meter.came(len(batch))
            records += len(batch)
            total += touch(batch)
    return meter.reading(records, total)


async def _polled_async(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    return await _counted(meter, consumer.poll, ask)


async def _got(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    return await _counted(meter, consumer.getmany, ask)


async def _counted(meter: Meter, poll: Callable[..., Awaitable[Any]], ask: Ask) -> Reading:
    records = total = 0
    while records < ask.records:
        for batch in (await poll(timeout_ms=WAIT_MS)).values():
            meter.came(len(batch))
            records += len(batch)
            total += touch(batch)
    return meter.reading(records, total)


async def _iterated(meter: Meter, consumer: Any, ask: Ask) -> Reading:
    records = total = 0
    async for record in consumer:
        if not records:
            meter.came(1)
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
                meter.came(1)
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
    import pyarrow.compute  # noqa: F401  (before the clocks start)

    import kohort

    meter = Meter()
    records = total = 0
    consumer: Any
    with kohort.KafkaConsumer(ask.topic, **ask.keywords()) as consumer:
        while records < ask.records:
            batch = consumer.poll_arrow(timeout_ms=WAIT_MS)
            if not batch.num_rows:
                continue
            meter.came(batch.num_rows)
            records += batch.num_rows
            total += touch_table(batch)
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
            **({"security.protocol": "ssl", "ssl.ca.location": ca} if (ca := cafile()) else {}),
            **more,
        }
        consumer: Any = Consumer(options)
        consumer.subscribe([ask.topic])
        while records < ask.records:
            batch = consumer.consume(CONFLUENT_RECORDS, WAIT_MS / 1000)
            if not batch:
                continue
            meter.came(len(batch))
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

        keywords = ask.keywords()
        if ca := keywords.pop("ssl_cafile", None):
            keywords["ssl_context"] = ssl.create_default_context(cafile=ca)

        async def main() -> Reading:
            consumer = AIOKafkaConsumer(ask.topic, **keywords)
            await consumer.start()
            return _over(await read(meter, consumer, ask))  # stop() may take long

        meter = Meter()
        return asyncio.run(main())

    return run


def kafka_python(ask: Ask) -> Reading:
    from kafka import KafkaConsumer

    meter = Meter()
    return _polled(meter, KafkaConsumer(ask.topic, **ask.keywords()), ask)


READERS: dict[str, Callable[[Ask], Reading]] = {
    names.LIMIT: anchors.limit,
    names.LIMIT_DEFAULT: anchors.limit_default,
    names.BARE_ARROW: anchors.bare_arrow,
    names.BARE_RECORDS: anchors.bare_records,
    names.RECORDS: kohort_poll,
    names.ITERATION: kohort_iterated,
    names.ASYNC_POLL: kohort_async(_polled_async),
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
    """Print the result and exit, because closing a client is not measured."""
    print(json.dumps(reading._asdict()), flush=True)
    os._exit(0)


def main() -> None:
    name, bootstrap_servers, topic, group, records = sys.argv[1:]
    _over(READERS[name](Ask(bootstrap_servers, topic, group, int(records))))


if __name__ == "__main__":
    main()
