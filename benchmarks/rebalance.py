"""Time until a second member of a group has its share, compared with other clients.

    python -m benchmarks.rebalance [--rounds 7] [--protocol classic|consumer] [--heartbeats 1,0.1]
        [--output FOLDER]

Measurements run on Apache Kafka. One member owns six partitions and is polled all the time. After a
random part of a heartbeat interval a second one starts. The measured time is from then until each
has three. The clients take turns within each round, so that load on the machine affects all of
them.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks._consumer_groups import ABOUT, HEARTBEATS_S
from benchmarks._consumer_groups import run as consumer_groups
from benchmarks._kafka import kafka
from benchmarks._program import about, new_group, parser, publish, require_kafka
from benchmarks._rounds import collect, table
from tests.interop import peers
from tests.interop.brokers import Broker
from tests.interop.franz import build, franz_go
from tests.interop.members import Members, shares
from tests.interop.peers import AioKafka, Confluent, Kohort, KohortAsync, Make, Settings

PARTITIONS = 6
EAGER, COOPERATIVE = "range", "cooperative-sticky"
SLACK_S = {EAGER: 0.1, COOPERATIVE: 0.2}
CLASSIC_HEARTBEATS_S = (0.1, 3.0)
LOOK_AGAIN_S = 0.002
SECONDS = "seconds"


class Case(NamedTuple):
    """One client with one way to rebalance and one heartbeat interval."""

    client: str
    strategy: str
    heartbeat_s: float
    make: Make
    option: str
    """Name of the client's option for the interval."""

    def __str__(self) -> str:
        return f"{self.client}, {self.strategy}, {self.heartbeat_s:g} s"

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


def measure(case: Case, broker: Broker, topic: str, rng: random.Random) -> dict[str, float]:
    """Return the seconds from the start of the second member until both have their share."""
    group = new_group()
    with Members() as members:
        first = members.join(case.make, case.settings(broker, topic, group, "one"))
        members.wait_until(shares([first], [PARTITIONS]))
        time.sleep(rng.uniform(0.3, 0.3 + case.heartbeat_s))
        # The members of the tests pause for longer between two looks.
        look_again = partial(time.sleep, LOOK_AGAIN_S)
        started = time.monotonic()
        second = members.join(case.make, case.settings(broker, topic, group, "two"))
        members.wait_until(shares([first, second], [PARTITIONS // 2] * 2), meanwhile=look_again)
        return {SECONDS: time.monotonic() - started}


def rows(values: dict[tuple[Case, str], list[float]]) -> Iterator[list[str]]:
    """Yield the cells of each case. The goal is for kohort only."""
    for (case, _), times in values.items():
        aim = case.heartbeat_s + SLACK_S[case.strategy]
        kind = "eager" if case.strategy == EAGER else "cooperative"
        reached = ("yes" if max(times) <= aim else "no") if case.client.startswith("kohort") else ""
        figures = statistics.median(times), min(times), max(times)
        shown = [f"{seconds:.2f}" for seconds in figures]
        yield [f"{case.heartbeat_s:g} s", kind, case.client, *shown, f"{aim:.1f}", reached]


def classic(rounds: int, rng: random.Random) -> str:
    """Measure the classic protocol, and return a Markdown table."""
    peers.POLL_MS = 10  # the assignment of a member is read between two polls
    with tempfile.TemporaryDirectory() as folder, kafka() as server:
        program = build(Path(folder)) if shutil.which("go") else None
        broker = Broker(server.bootstrap_servers)
        topic = broker.create_topic("t", PARTITIONS)
        run = partial(measure, broker=broker, topic=topic, rng=rng)
        found, _ = collect(rounds, cases(program), run, warm_up=True)
    head = "heartbeat", "rebalance", "client", "median s", "best s", "worst s", "aim s", "reached"
    return table(head, "l" * 8, rows(found))


def main() -> None:
    arguments = parser(__doc__, rounds=7)
    arguments.add_argument("--protocol", choices=("classic", "consumer"), help="default: both")
    arguments.add_argument(
        "--heartbeats",
        type=lambda text: tuple(float(word) for word in text.split(",")),
        default=HEARTBEATS_S,
        help="intervals in seconds of the consumer protocol, such as 1,0.1; default: all",
    )
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    require_kafka()
    rng = random.Random(args.seed)
    if args.protocol != "consumer":
        found = classic(args.rounds, rng)
        publish(args.output, "rebalance", "A second member joins", about(__doc__), found)
    if args.protocol != "classic":
        found = consumer_groups(args.rounds, rng, args.heartbeats)
        title = "Rebalances by the consumer protocol"
        publish(args.output, "rebalance_consumer", title, ABOUT, found)


if __name__ == "__main__":
    main()
