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
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks._consumer_groups import ABOUT, HEARTBEATS_S
from benchmarks._consumer_groups import run as consumer_groups
from benchmarks._kafka import kafka
from benchmarks._rounds import turns
from tests.interop import peers
from tests.interop.brokers import Broker
from tests.interop.franz import FranzMember, build
from tests.interop.peers import AioKafka, Confluent, Kohort, KohortAsync, Settings
from tests.support.jars import missing_kafka

PARTITIONS = 6
EAGER, COOPERATIVE = "range", "cooperative-sticky"
SLACK_S = {EAGER: 0.1, COOPERATIVE: 0.2}
CLASSIC_HEARTBEATS_S = (0.1, 3.0)
LIMIT_S = 60.0
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


class Member(Protocol):
    """Member that polls in the background until it is closed."""

    @property
    def owned(self) -> frozenset[int]: ...

    def close(self) -> None: ...


class Polled:
    """Python client that is polled in a separate thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.owned: frozenset[int] = frozenset()
        self.failure: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Any]) -> None:
        try:
            peer = make()
            while not self._over.is_set():
                peer.poll_once()
                self.owned = peer.assignment()
            peer.close()
        except BaseException as error:
            self.failure = error

    def close(self) -> None:
        self._over.set()
        self._thread.join(LIMIT_S)
        if self.failure is not None:
            raise self.failure


class Franz:
    """franz-go in a separate process."""

    def __init__(self, program: str, strategy: str, heartbeat_s: float, settings: Settings) -> None:
        flags = {
            "bootstrap": settings.bootstrap_servers,
            "topic": settings.topic,
            "group": settings.group,
            "client-id": settings.client_id,
            "strategy": strategy,
            "heartbeat": f"{round(heartbeat_s * 1000)}ms",
        }
        words = [f"-{name}={value}" for name, value in flags.items()]
        self._member = FranzMember([program, *words, "consume"])

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._member.owned)

    def close(self) -> None:
        self._member.leave()


class Case(NamedTuple):
    """One client with one way to rebalance and one heartbeat interval."""

    client: str
    strategy: str
    heartbeat_s: float
    make: Callable[[Settings], Member]


def cases(program: str | None) -> Iterator[Case]:
    """Yield all cases. franz-go needs its program, which may not be built."""
    for heartbeat_s in CLASSIC_HEARTBEATS_S:
        interval = round(heartbeat_s * 1000)
        python = {"heartbeat_interval_ms": interval}
        for strategy in (EAGER, COOPERATIVE):
            ours = python | {"partition_assignment_strategy": [strategy]}
            dotted = {
                "heartbeat.interval.ms": interval,
                "partition.assignment.strategy": strategy,
            }
            yield Case("kohort", strategy, heartbeat_s, polled(Kohort, ours))
            on_asyncio = polled(KohortAsync, ours, "asyncio")
            yield Case("kohort, asyncio", strategy, heartbeat_s, on_asyncio)
            yield Case("confluent-kafka", strategy, heartbeat_s, polled(Confluent, dotted))
            if strategy == EAGER:
                yield Case("aiokafka", strategy, heartbeat_s, polled(AioKafka, python))
            if program is not None:
                go = partial(Franz, program, strategy, heartbeat_s)
                yield Case("franz-go", strategy, heartbeat_s, go)


def polled(
    kind: Callable[..., Any], options: dict[str, Any], *arguments: Any
) -> Callable[[Settings], Member]:
    """Return a function that creates a member of a Python client with these options."""

    def make(settings: Settings) -> Member:
        changed = replace(settings, more=options)
        return Polled(lambda: kind(changed, *arguments))

    return make


@contextmanager
def closing(member: Member) -> Iterator[Member]:
    try:
        yield member
    finally:
        member.close()


def wait_until(*members: Member, sizes: list[int]) -> None:
    """Return once the members own ``share`` partitions each, every partition once."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        owned = [member.owned for member in members]
        if [len(own) for own in owned] == sizes and len(frozenset().union(*owned)) == PARTITIONS:
            return
        failures = [getattr(member, "failure", None) for member in members]
        if time.monotonic() > deadline or any(failures):
            raise RuntimeError(f"the group does not settle: {owned}, {failures}")
        time.sleep(LOOK_AGAIN_S)


def measure(case: Case, broker: Broker, topic: str, rng: random.Random) -> float:
    """Return the seconds from the start of the second member until both have their share."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    settings = [Settings(broker.bootstrap_servers, topic, group, name) for name in ("one", "two")]
    with closing(case.make(settings[0])) as first:
        wait_until(first, sizes=[PARTITIONS])
        time.sleep(rng.uniform(0.3, 0.3 + case.heartbeat_s))
        started = time.monotonic()
        with closing(case.make(settings[1])) as second:
            wait_until(first, second, sizes=[PARTITIONS // 2] * 2)
            return time.monotonic() - started


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
