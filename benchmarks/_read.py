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
import itertools
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import _anchors as anchors
from benchmarks import _consumers as ways
from benchmarks import _names as names
from benchmarks._consumers import WAIT_MS, WAYS, Ask, Way
from benchmarks._measured import end
from benchmarks._reading import Meter, Reading, touch, touch_messages, touch_table

ANCHORS = {
    names.LIMIT: anchors.limit,
    names.LIMIT_DEFAULT: anchors.limit_default,
    names.BARE_ARROW: anchors.bare_arrow,
    names.BARE_RECORDS: anchors.bare_records,
}
CLIENTS = {
    names.RECORDS: ways.KOHORT,
    names.ITERATION: ways.ITERATION,
    names.ASYNC_POLL: ways.KOHORT_ASYNC,
    names.ASYNC_FOR: ways.ASYNC_FOR,
    names.PURE: ways.KOHORT,
    names.ARROW: ways.ARROW,
    names.CONFLUENT: ways.CONSUME,
    names.TUNED: ways.CONSUME,
    names.AIOKAFKA: ways.AIOKAFKA,
    names.AIOKAFKA_FOR: ways.AIOKAFKA_FOR,
    names.KAFKA_PYTHON: ways.KAFKA_PYTHON,
}
OPTIONS: dict[str, dict[str, Any]] = {
    names.CONFLUENT: {"check.crcs": True},
    names.TUNED: {"check.crcs": True, "fetch.queue.backoff.ms": 1},
}
"""Options besides the defaults. The other libraries check CRCs by default."""


Counted = tuple[int, int]
"""Number of the records that were read, and the sum of their fields."""


def read(name: str, ask: Ask, records: int, done: Callable[[Reading], object]) -> None:
    """Pass the reading to ``done`` before the consumer is closed."""
    if name in ANCHORS:
        done(ANCHORS[name](ask))
        return
    way = WAYS[CLIENTS[name]]
    meter = Meter()
    if way.is_async:
        asyncio.run(_read_async(way, ask, records, meter, done))
        return
    look: Callable[[Any], int] = touch_messages if name in OPTIONS else touch
    if name == names.ARROW:
        import pyarrow.compute  # noqa: F401  (before the clocks start)

        look = touch_table
    consumer = way.open(ask, **OPTIONS.get(name, {}))
    if name == names.ITERATION:
        done(meter.reading(*_iterated(consumer, records, meter)))
    else:
        done(meter.reading(*_polled(way, consumer, records, meter, look)))
    consumer.close()


def _polled(
    way: Way, consumer: Any, records: int, meter: Meter, look: Callable[[Any], int]
) -> Counted:
    count = total = 0
    while count < records:
        for batch in way.batches(way.poll(consumer, WAIT_MS)):
            meter.came(len(batch))
            count += len(batch)
            total += look(batch)
    return count, total


def _iterated(consumer: Any, records: int, meter: Meter) -> Counted:
    first = next(consumer)
    meter.came(1)
    return records, touch([first]) + touch(itertools.islice(consumer, records - 1))


async def _read_async(
    way: Way, ask: Ask, records: int, meter: Meter, done: Callable[[Reading], object]
) -> None:
    consumer = await way.start(ask)
    count = total = 0
    if way in (WAYS[ways.ASYNC_FOR], WAYS[ways.AIOKAFKA_FOR]):
        async for record in consumer:
            if not count:
                meter.came(1)
            count += 1
            total += len(record.key) + len(record.value) + record.offset + record.timestamp
            if count == records:
                break
    while count < records:
        for batch in way.batches(await way.poll(consumer, WAIT_MS)):
            meter.came(len(batch))
            count += len(batch)
            total += touch(batch)
    done(meter.reading(count, total))
    await consumer.close()


def main() -> None:
    name, bootstrap_servers, topic, group, records = sys.argv[1:]
    ask = Ask(bootstrap_servers, topic, group)
    # Closing a client is not measured.
    read(name, ask, int(records), lambda reading: end(**reading._asdict()))


if __name__ == "__main__":
    main()
