"""Time until a second member of a group has its share, compared with other clients.

    python -m benchmarks.rebalance [--rounds 7] [--protocol classic|consumer] [--heartbeats 1,0.1]
        [--output FILE]

Measurements run on Apache Kafka. One member owns six partitions and is polled all the time. After a
random part of a heartbeat interval a second one starts. The measured time is from then until each
has three. The clients take turns within each round, so that load on the machine affects all of
them.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks._consumer_groups import ABOUT, HEARTBEATS_S
from benchmarks._consumer_groups import run as consumer_groups
from benchmarks._kafka import kafka
from benchmarks._rounds import turns
from tests.interop import peers
from tests.interop.brokers import Broker
from tests.interop.franz import build, franz_go
from tests.interop.members import Members, shares
from tests.interop.peers import AioKafka, Confluent, Kohort, KohortAsync, Make, Settings
from tests.support.jars import missing_kafka

PARTITIONS = 6
EAGER, COOPERATIVE = "range", "cooperative-sticky"
SLACK_S = {EAGER: 0.1, COOPERATIVE: 0.2}
CLASSIC_HEARTBEATS_S = (0.1, 3.0)
LOOK_AGAIN_S = 0.002


class Page(NamedTuple):
    """Results of one protocol."""

    file: str
    title: str
    text: str


assert __doc__ is not None
PAGES = {
    "classic": Page("rebalance.md", "A second member joins", __doc__.split("\n\n")[2]),
    "consumer": Page("rebalance_consumer.md", "Rebalances by the consumer protocol", ABOUT),
}


class Case(NamedTuple):
    """One client with one way to rebalance and one heartbeat interval."""

    client: str
    strategy: str
    heartbeat_s: float
    make: Make
    option: str
    """Name of the client's option for the interval."""

    def settings(self, broker: Broker, topic: str, group: str, name: str) -> Settings:
        """Return the settings of a member."""
        interval = round(self.heartbeat_s * 1000)
        more = {self.option: f"{interval}ms" if self.option == "heartbeat" else interval}
        servers = broker.bootstrap_servers
        return Settings(servers, topic, group, name, self.strategy, more=more)


def cases(program: str | None) -> Iterator[Case]:
    """Yield all cases. franz-go needs its program, which may not be built."""
    for heartbeat_s in CLASSIC_HEARTBEATS_S:
        for strategy in (EAGER, COOPERATIVE):
            at = strategy, heartbeat_s
            on_asyncio = partial(KohortAsync, backend="asyncio")
            yield Case("kohort", *at, Kohort, "heartbeat_interval_ms")
            yield Case("kohort, asyncio", *at, on_asyncio, "heartbeat_interval_ms")
            yield Case("confluent-kafka", *at, Confluent, "heartbeat.interval.ms")
            if strategy == EAGER:
                yield Case("aiokafka", *at, AioKafka, "heartbeat_interval_ms")
            if program is not None:
                yield Case("franz-go", *at, franz_go(program), "heartbeat")


def measure(case: Case, broker: Broker, topic: str, rng: random.Random) -> float:
    """Return the seconds from the start of the second member until both have their share."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    with Members() as members:
        first = members.join(case.make, case.settings(broker, topic, group, "one"))
        members.wait_until(shares([first], [PARTITIONS]))
        time.sleep(rng.uniform(0.3, 0.3 + case.heartbeat_s))
        started = time.monotonic()
        second = members.join(case.make, case.settings(broker, topic, group, "two"))
        members.wait_until(shares([first, second], [PARTITIONS // 2] * 2), meanwhile=look_again)
        return time.monotonic() - started


def look_again() -> None:
    """Pause for less than the members of the tests do, because the time is measured."""
    time.sleep(LOOK_AGAIN_S)


def table(values: dict[Case, list[float]]) -> str:
    """Return a Markdown table. The goal is for kohort only."""
    lines = [
        "| heartbeat | rebalance | client | median s | best s | worst s | aim s | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, times in values.items():
        aim = case.heartbeat_s + SLACK_S[case.strategy]
        kind = "eager" if case.strategy == EAGER else "cooperative"
        reached = ("yes" if max(times) <= aim else "no") if case.client.startswith("kohort") else ""
        lines.append(
            f"| {case.heartbeat_s:g} s | {kind} | {case.client} | {statistics.median(times):.2f} | "
            f"{min(times):.2f} | {max(times):.2f} | {aim:.1f} | {reached} |"
        )
    return "\n".join(lines)


def classic(rounds: int, rng: random.Random) -> str:
    """Measure the classic protocol, and return a Markdown table."""
    peers.POLL_MS = 10  # the assignment of a member is read between two polls
    with tempfile.TemporaryDirectory() as folder, kafka() as server:
        program = build(Path(folder)) if shutil.which("go") else None
        server.start()
        broker = Broker(server.bootstrap_servers)
        topic = broker.create_topic("t", PARTITIONS)
        values: dict[Case, list[float]] = {case: [] for case in cases(program)}
        for number, case in turns(rounds, values):
            print(f"round {number} of {rounds}: {case.client}, {case.strategy}", flush=True)
            took = measure(case, broker, topic, rng)
            if number:
                values[case].append(took)
    return table(values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--protocol", choices=("classic", "consumer"), help="default: both")
    parser.add_argument(
        "--heartbeats",
        type=lambda text: tuple(float(word) for word in text.split(",")),
        default=HEARTBEATS_S,
        help="intervals in seconds of the consumer protocol, such as 1,0.1; default: all",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a file for one protocol, else a folder")
    args = parser.parse_args()
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    rng = random.Random(args.seed)
    for protocol, page in PAGES.items():
        if args.protocol in (None, protocol):
            if protocol == "classic":
                text = classic(args.rounds, rng)
            else:
                text = consumer_groups(args.rounds, rng, args.heartbeats)
            print(text)
            if args.output is not None:
                output = args.output / page.file if args.output.is_dir() else args.output
                output.write_text(f"# {page.title}\n\n{page.text}\n\n{text}\n")


if __name__ == "__main__":
    main()
