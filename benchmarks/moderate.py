"""Cost and latency of records that arrive at a moderate rate, compared with other clients.

    python -m benchmarks.moderate [--rounds 3] [--seconds 5] [--rates A,B] [--output FOLDER]

A producer with a linger of 5 ms writes 100 to 10,000 records a second. They go into 12 partitions
of a topic on Apache Kafka. Each client reads as the only member of a group, in a separate process,
with its default options. The clients take turns within each round. CPU is user and system time of
the process, divided by the records. Wake-ups are the times that a thread waited and was woken. The
latency of a record is the time from its produce() to the return of the call with it.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks import _consumers as clients
from benchmarks._goals import Goal, goal_table
from benchmarks._measured import STAMP_BYTES, Task
from benchmarks._program import (
    about,
    add_names,
    brokers,
    measured,
    numbers,
    parser,
    publish,
    setting,
)
from benchmarks._rounds import collect, spread, table
from tests.support.topics import create_topic

PARTITIONS = 12
LINGER_MS = 5
TICK_S = 0.001
"""Least seconds between two groups of records of the producer."""
FLUSH_S = 60.0
FIGURES = ("CPU us/record", "wake-ups/s", "records a call", "p50 ms", "p99 ms")
CPU, WAKEUPS, _, P50, _ = FIGURES
WAYS = {
    "kohort poll()": clients.KOHORT,
    clients.ITERATION: clients.ITERATION,
    clients.ARROW: clients.ARROW,
    "kohort async poll()": clients.KOHORT_ASYNC,
    clients.ASYNC_FOR: clients.ASYNC_FOR,
    clients.CONSUME: clients.CONSUME,
    "confluent-kafka poll()": clients.CONFLUENT,
    "aiokafka getmany()": clients.AIOKAFKA,
    clients.AIOKAFKA_FOR: clients.AIOKAFKA_FOR,
}


class Load(NamedTuple):
    """Records a second, and bytes of each value."""

    rate: int
    size: int

    @property
    def title(self) -> str:
        size = f"{self.size} B" if self.size < 1000 else f"{self.size // 1000} KB"
        return f"{self.rate:,} records/s of {size}"


BUSY = Load(10_000, 100)
LOADS = (Load(100, 100), Load(1000, 100), BUSY, Load(10_000, 1000))
Figures = dict[tuple[Load, str, str], list[float]]
"""Figures of each load and way, one a round."""


def goals() -> Iterator[Goal]:
    """Yield the goals. Less is better."""
    for way in ("kohort poll()", "kohort async poll()"):
        ratio = f"CPU of {way} / confluent-kafka", CPU, clients.CONSUME
        for load, (text, name, over), aim, floor in (
            (BUSY, (f"CPU of {way}, us a record", CPU, None), 12, 18),
            (BUSY, ratio, 0.7, 1.0),
            (BUSY, (f"p50 of {way}, ms", P50, None), 10, 15),
            (BUSY, (f"wake-ups of {way} a second", WAKEUPS, None), 300, 600),
            *((load, ratio, 1.2, 1.5) for load in LOADS[:2]),
        ):
            compared = over and (load, over, name)
            yield Goal(f"{load.title}: {text}", (load, way, name), compared, aim, floor)


@contextmanager
def producing(servers: str, topic: str, load: Load) -> Iterator[None]:
    """Produce at this load, evenly over the partitions, during the block."""
    ended = threading.Event()
    options = {"bootstrap.servers": servers, "linger.ms": LINGER_MS, "acks": 1}
    producer = Producer(options)
    rest = b"v" * (load.size - STAMP_BYTES)

    def run() -> None:
        began, number = time.monotonic(), 0
        while not ended.wait(max(TICK_S, began + number / load.rate - time.monotonic())):
            due = int((time.monotonic() - began) * load.rate)
            while number <= due:
                value = time.monotonic_ns().to_bytes(STAMP_BYTES, "big") + rest
                try:
                    producer.produce(topic, value, partition=number % PARTITIONS)
                except BufferError:  # the broker is slower
                    producer.poll(TICK_S)
                    continue
                number += 1
                producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        producer.flush(FLUSH_S)


def read(way: str, servers: str, topic: str, seconds: float) -> dict[str, float]:
    """Return the figures of a way, measured while records are produced."""
    found = measured(Task("moderate", WAYS[way], servers, topic, seconds=seconds))
    a_call = found["records"] / found["calls"]
    values = found["cpu_us"], found["wakeups_per_s"], a_call, found["p50_ms"], found["p99_ms"]
    return dict(zip(FIGURES, values, strict=True))


def way_table(figures: Figures, load: Load) -> str:
    """Return the medians, with minimum and maximum of the rounds, as Markdown."""
    rows = (
        [way, *(spread(figures[load, way, name]) for name in FIGURES)]
        for way in WAYS
        if (load, way, CPU) in figures
    )
    return table(["client", *FIGURES], "lrrrrr", rows)


def main() -> None:
    arguments = parser(__doc__, rounds=3, servers=True)
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--rates", type=numbers, help="some of the rates: a,b,c")
    add_names(arguments, "--ways", WAYS)
    args = arguments.parse_args()
    loads = [load for load in LOADS if args.rates is None or load.rate in args.rates]
    figures: Figures = {}
    shares: list[float] = []
    with brokers(args.servers) as servers:
        for load in loads:
            topic = create_topic(servers, f"moderate-{load.rate}-{load.size}", PARTITIONS)
            with producing(servers, topic, load):
                run = partial(read, servers=servers, topic=topic, seconds=args.seconds)
                found, more = collect(args.rounds, args.ways, run, warm_up=False)
            figures |= {(load, *key): values for key, values in found.items()}
            shares += more
    publish(
        args.output,
        "moderate",
        "Records at a moderate rate",
        about(__doc__),
        f"{setting('anyio', 'pyarrow', 'confluent-kafka', 'aiokafka')} Medians of {args.rounds} "
        f"rounds of {args.seconds:g} s, least and most in brackets. Other processes, the broker "
        f"and the producer included, took {statistics.median(shares):.0f} % of the cores (median).",
        *(f"## {load.title}\n\n{way_table(figures, load)}" for load in loads),
        f"## Goals\n\n{goal_table(figures, goals())}",
    )


if __name__ == "__main__":
    main()
