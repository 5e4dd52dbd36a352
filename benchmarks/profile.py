"""Cost of a fetch, of a batch and of a record, by thread and by kind of code.

    python -m benchmarks.profile [--sizes plain,large,huge] [--partitions 1,4,100] [--rounds 2]
        [--outputs columns,objects] [--seconds 2] [--scale 0.5]
        [--bootstrap HOST:PORT [--topic NAME]] [--output FILE]

Topics with values of 100 B, 1 KB and 10 KB are read through a group on Apache Kafka, as tables and
as objects. Meanwhile ``perf`` takes samples of the reading process. All fields of each record are
read. Kafka is started, unless ``--bootstrap`` names a cluster. Topics are then created there, and
deleted at the end. ``--topic`` profiles an existing topic.

The consumer thread talks to brokers, the caller is the thread that polls. The CPU time of each has
these parts:

* Python is the interpreter and its objects.
* lock is taking and releasing the GIL and other locks.
* copy is the kernel's receive, memcpy and memmove.
* CRC is checksums.
* decoding is kohort's compiled decoder.
* kernel is the rest of the kernel.
* other is the C library's allocator and pyarrow.

Waiting is for the GIL, for a core, or for the rest: the broker or the other thread.

Without perf the parts are missing. CPU time and waiting for a core come from the kernel's counters
of each thread. ``benchmarks.decode_profile`` shows the lines of the decoder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from benchmarks import _perf as perf
from benchmarks import _profiled as profiled
from benchmarks._anchors import LARGE as LARGE_FETCHES
from benchmarks._arguments import numbers, require_known, words
from benchmarks._clients import NO_SPINNING
from benchmarks._kafka import kafka
from benchmarks._machine import Others, hardware, versions
from benchmarks._profile_tables import Cost, sections, summary
from benchmarks._raw import raw_fetches, walk
from benchmarks._rounds import turns
from benchmarks._topics import HUGE, LARGE, PLAIN, SHAPES, fill
from tests.support.jars import KAFKA_VERSION, missing_kafka

ROOT = Path(__file__).parents[1]
SIZES = (PLAIN, LARGE, HUGE)
OUTPUTS = (profiled.COLUMNS, profiled.OBJECTS)
TIMEOUT_S = 120.0


class Topic(NamedTuple):
    """Topic to read. ``text`` is its title."""

    name: str
    text: str
    records: int
    batches: int


def count(servers: str, name: str) -> tuple[int, int]:
    """Return the number of records and of batches of a topic, from their lengths."""
    records = batches = 0

    def take(_: int, offset: int, data: memoryview) -> int:
        nonlocal records, batches
        after, more = walk(data, offset)
        records += after - offset
        batches += more
        return after

    with raw_fetches(servers, name, LARGE_FETCHES, take) as fetches:
        buffer = fetches.new_buffer()
        while not fetches.done:
            buffer = fetches.receive(buffer)
    return records, batches


def profile(servers: str, topic: Topic, output: str, seconds: float, sampled: bool) -> Cost:
    """Read a topic in a new process and return the cost."""
    group = f"profile-{uuid.uuid4().hex[:8]}"
    options = [output, servers, topic.name, group, str(topic.records), str(seconds)]
    command = [sys.executable, "-m", profiled.__name__, *options]
    with tempfile.TemporaryDirectory() as folder:
        recorded = Path(folder) / "perf.data"
        done = subprocess.run(
            [*perf.command(recorded), *command] if sampled else command,
            cwd=ROOT,
            env={**os.environ, **NO_SPINNING},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"reading {topic.name} failed: {done.stderr[-2000:]}")
        found = profiled.Profiled(**json.loads(done.stdout.splitlines()[-1]))
        events = perf.lines(recorded) if sampled else iter(())
        return Cost.of(found, events, topic.records / topic.batches)


@contextmanager
def topics(
    servers: str, sizes: list[str], partitions: list[int], scale: float
) -> Iterator[list[Topic]]:
    """Create and fill a topic for each size and number of partitions; delete them at the end."""
    made: list[Topic] = []
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        for size in sizes:
            for number in partitions:
                shape = SHAPES[size]
                title = f"{shape.text}, {number} partition{'s' if number > 1 else ''}"
                print(f"filling: {title}", flush=True)
                name = f"profile-{size}-{number}-{uuid.uuid4().hex[:6]}"
                fill(servers, shape, scale, number, name)
                made.append(Topic(name, title, *count(servers, name)))
        os.sync()  # so that writing to disks does not slow the first readings
        yield made
    finally:
        for future in admin.delete_topics([topic.name for topic in made]).values() if made else ():
            future.result(TIMEOUT_S)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", type=words, default=list(SIZES), help=", ".join(SIZES))
    parser.add_argument("--partitions", type=numbers, default=[1, 4, 100], help="1,4,100")
    parser.add_argument("--outputs", type=words, default=list(OUTPUTS), help=", ".join(OUTPUTS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each reading")
    parser.add_argument("--scale", type=float, default=0.5, help="factor of the topics' sizes")
    parser.add_argument("--bootstrap", help="running cluster; without it Kafka is started")
    parser.add_argument("--topic", help="existing topic on that cluster, instead of new ones")
    parser.add_argument("--output", type=Path, help="file for the tables, which are also printed")
    args = parser.parse_args()
    for given, known in ((args.sizes, SIZES), (args.outputs, OUTPUTS)):
        require_known(parser, given, known)
    if args.topic and not args.bootstrap:
        parser.error("--topic requires --bootstrap")
    return args


def main() -> None:
    """Profile all topics in turn, print the tables and write them."""
    args = arguments()
    if not args.bootstrap and (reason := missing_kafka()) is not None:
        raise SystemExit(
            f"cannot start Apache Kafka: {reason}. Use --bootstrap for a running cluster"
        )
    lacking = perf.missing()
    if lacking is not None:
        print(f"CPU time is not divided: {lacking}", flush=True)
    with ExitStack() as stack:
        servers = args.bootstrap
        if servers is None:
            server = stack.enter_context(kafka())
            server.start()
            servers = server.bootstrap_servers
        if args.topic:
            made = [Topic(args.topic, args.topic, *count(servers, args.topic))]
        else:
            filled = topics(servers, args.sizes, args.partitions, args.scale)
            made = stack.enter_context(filled)
        ways = [(topic, output) for topic in made for output in args.outputs]
        costs: dict[tuple[str, str], Cost] = {}
        others, shares = Others(), []
        for number, (topic, output) in turns(args.rounds, ways, warm_up=False):
            cost = profile(servers, topic, output, args.seconds, lacking is None)
            shares.append(others.share())
            print(
                f"round {number}, {topic.text}, {output}: {cost.rate / 1000:,.0f} k records/s; "
                f"others {shares[-1]:.0f} %",
                flush=True,
            )
            key = topic.text, output
            costs[key] = costs[key].plus(cost) if key in costs else cost
    where = "a cluster that ran already" if args.bootstrap else f"Apache Kafka {KAFKA_VERSION}"
    found = "; ".join([hardware(), *versions("anyio", "pyarrow", java=True)])
    divided = f"\n\nCPU time is not divided: {lacking}." if lacking else ""
    text = (
        f"# The cost of a fetch, a batch and a record\n\n{found}; {where} on the same machine.\n\n"
        f"{args.rounds} rounds of {args.seconds:g} s for each row, added up. Other processes took "
        f"{sorted(shares)[len(shares) // 2]:.0f} % of all cores (median), {max(shares):.0f} % at "
        f"most; that includes the broker unless this program started it.{divided}\n\n"
        f"{summary(costs)}\n\n{sections(costs)}\n"
    )
    print(f"\n{text}")
    if args.output is not None:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(text)


if __name__ == "__main__":
    main()
