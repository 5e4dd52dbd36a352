"""Throughput of process() by order beside Parallel Consumer, and its cost beside a bare loop.

    python -m benchmarks.process [--rounds 3] [--short] [--output FOLDER]

10,000 records of one partition are handled for 0 to 5 ms each, by a seed, with a concurrency of
100. The seconds are those from the first record to the end of the last one. The ideal is the sum of
the times of all records, that of the longest key, or a hundredth of the sum. "async for" is a loop
that awaits the handler, and shows what the timers of asyncio add. "CPU" is that of the process for
a record whose handler does nothing. Four partitions have 300,000 of them, or 3 million for tables.
Each measurement is a separate process on Apache Kafka, and all take turns within each
round. Parallel Consumer is Confluent's, for Java.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from benchmarks._goals import Goal, goal_table
from benchmarks._kafka import java_program, missing_java_program
from benchmarks._processed import BATCHES, CONCURRENCY, LOOP, TABLES, TASKS, THREADS
from benchmarks._program import (
    about,
    brokers,
    new_group,
    parser,
    publish,
    run,
    run_command,
    setting,
)
from benchmarks._rounds import collect, spread, table
from benchmarks._topics import PLAIN, SHAPES, Filled, fill
from tests.support.jars import parallel_consumer_jars
from tests.support.topics import create_topic

RECORDS, SHORT_RECORDS = 10_000, 1_000
BUSY_RECORDS = 300_000
BUSY_PARTITIONS = 4
LONGEST_MS = 5
SEED = 7
FLUSH_S = 300.0
PARALLEL = "Parallel Consumer"
IDEAL = "ideal"
SECONDS, CPU = "seconds", "CPU, us a record"
RUNTIMES = THREADS, TASKS, PARALLEL, LOOP


class Order(NamedTuple):
    """An order of records, and the number of keys in their topic."""

    text: str
    order: str
    keys: int


PARTITION = Order("partition", "partition", 10)
TEN = Order("key, 10 keys", "key", 10)
MANY = Order("key, 10,000 keys", "key", 10_000)
ORDERS = PARTITION, TEN, MANY
COSTS = {
    LOOP: (LOOP, "none"),
    "partition": (TASKS, "partition"),
    "key": (TASKS, "key"),
    "none": (TASKS, "none"),
    TABLES: (TABLES, "partition"),
    BATCHES: (BATCHES, "partition"),
}
"""Ways to do nothing with a record, each with the way of the measured process and the order."""
LIMITS = {PARTITION: (1.05, 1.1), TEN: (1.1, 1.15), MANY: (2.0, 4.0)}
"""Goal and floor of each order, as a ratio to the ideal."""


def durations_ms(records: int) -> list[int]:
    """Return for how long each record is handled."""
    rng = random.Random(SEED)
    return [rng.randint(0, LONGEST_MS) for _ in range(records)]


def ideal_s(order: Order, records: int) -> float:
    """Return the shortest time in which all records can be handled."""
    durations = durations_ms(records)
    if order.order == "partition":
        return sum(durations) / 1000
    by_key: Counter[int] = Counter()
    for number, duration in enumerate(durations):
        by_key[number % order.keys] += duration
    return max(*by_key.values(), sum(durations) / CONCURRENCY) / 1000


def write(servers: str, topic: str, partitions: int, rows: Iterable[tuple[int, int]]) -> str:
    """Create a topic whose records have a number as key, and a duration as value."""
    create_topic(servers, topic, partitions)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for number, (key, duration) in enumerate(rows):
        producer.produce(topic, b"%d" % duration, b"%d" % key, partition=number % partitions)
        producer.poll(0)
    if producer.flush(FLUSH_S):
        raise TimeoutError(f"the records of {topic} are not written")
    return topic


def write_all(servers: str, records: int) -> dict[int, str]:
    """Return the topics by their number of keys."""
    durations = durations_ms(records)
    return {
        keys: write(servers, f"keys-{keys}", 1, ((n % keys, ms) for n, ms in enumerate(durations)))
        for keys in {order.keys for order in ORDERS}
    }


def goals() -> Iterable[Goal]:
    for runtime in (THREADS, TASKS):
        for order, (goal, floor) in LIMITS.items():
            case = (runtime, order), SECONDS
            if (runtime, order) == (TASKS, PARTITION):
                yield Goal(f"{runtime}, partition / {LOOP}", case, ((LOOP, order), SECONDS), 1, 1.1)
            for other, *limits in ((IDEAL, goal, floor), (PARALLEL, 0.9, 1.0)):
                over = (other, order), SECONDS
                yield Goal(f"{runtime}, {order.text} / {other}", case, over, *limits)
    for name in ("partition", "key", "none"):
        yield Goal(f"{name} over {LOOP}, us a record", ("over", name), None, 1.5, 2.5)
    yield Goal(f"{BATCHES} / {TABLES}", (BATCHES, CPU), (TABLES, CPU), 1.0, 1.05)


def measured_order(
    case: tuple[str, Order], servers: str, topics: Mapping[int, str], java: list[str], records: int
) -> dict[str, float]:
    """Measure the seconds of one runtime and order."""
    runtime, order = case
    arguments = servers, topics[order.keys], new_group(), order.order, records
    if runtime == PARALLEL:
        found = run_command([*java, *map(str, arguments)])
    else:
        found = run("_processed", runtime, *arguments)
    return {SECONDS: found["seconds"]}


def measured_cost(name: str, servers: str, busy: Filled, rows: Filled) -> dict[str, float]:
    """Measure the CPU time of a way to do nothing."""
    way, order = COSTS[name]
    filled = rows if way in (TABLES, BATCHES) else busy
    found = run("_processed", way, servers, filled.topic, new_group(), order, filled.records)
    return {CPU: found["cpu_s"] / filled.records * 1e6}


def main() -> None:
    arguments = parser(__doc__, rounds=3, servers=True)
    arguments.add_argument("--short", action="store_true", help=f"{SHORT_RECORDS} records")
    args = arguments.parse_args()
    records = SHORT_RECORDS if args.short else RECORDS
    missing = missing_java_program()
    runtimes = [name for name in RUNTIMES if name != PARALLEL or missing is None]
    with brokers(args.servers) as servers, tempfile.TemporaryDirectory() as folder:
        topics = write_all(servers, records)
        nothing = ((number % 1000, 0) for number in range(BUSY_RECORDS))
        busy = Filled(write(servers, "busy", BUSY_PARTITIONS, nothing), BUSY_RECORDS, 0)
        rows = fill(servers, SHAPES[PLAIN], 0.1 if args.short else 1)
        java: list[str] = []
        if missing is None:
            java = java_program("Parallel", Path(folder), parallel_consumer_jars())
        figures, _ = collect(
            args.rounds,
            [
                (runtime, order)
                for order in ORDERS
                for runtime in runtimes
                if runtime != LOOP or order is PARTITION
            ],
            lambda case: measured_order(case, servers, topics, java, records),
            warm_up=False,
        )
        costs, _ = collect(
            args.rounds,
            COSTS,
            lambda name: measured_cost(name, servers, busy, rows),
            warm_up=True,
        )
    all_figures: dict[Any, list[float]] = dict(figures)
    all_figures.update(costs)
    for order in ORDERS:
        all_figures[(IDEAL, order), SECONDS] = [ideal_s(order, records)] * args.rounds
    for name in COSTS:
        pairs = zip(costs[name, CPU], costs[LOOP, CPU], strict=True)
        all_figures["over", name] = [ours - bare for ours, bare in pairs]
    columns = IDEAL, *runtimes
    seconds = (
        [order.text, *(spread(all_figures.get(((name, order), SECONDS), [])) for name in columns)]
        for order in ORDERS
    )
    publish(
        args.output,
        "process",
        "Processing",
        about(__doc__),
        setting("anyio"),
        table([SECONDS, *columns], f"l{'r' * len(columns)}", seconds),
        table(["", CPU], "lr", ([name, spread(costs[name, CPU])] for name in COSTS)),
        goal_table(all_figures, goals()),
        f"{PARALLEL} was not measured: {missing}." if missing else "",
    )


if __name__ == "__main__":
    main()
