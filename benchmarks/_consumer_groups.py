"""Latency of groups by the consumer protocol: a member joins, a member leaves, four start at once.

The broker accepts a heartbeat interval below its default of 5 seconds here. Each group has its
interval as a group config.
"""

from __future__ import annotations

import functools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks._kafka import java_program, kafka
from benchmarks._program import new_group
from benchmarks._rounds import table, turns
from tests.interop.brokers import Broker
from tests.interop.java_peer import Java
from tests.interop.members import Member, Members
from tests.interop.peers import Confluent, Kohort, Make, Settings

ABOUT = """\
Measured on one node of Apache Kafka, whose minimum of the heartbeat interval is lowered. A topic
has eight partitions. After a part of a heartbeat interval a second member starts. The time ends
with the last callback of a member for its share. After another part the second member leaves. It
polls neither before nor after that, and the time ends when the first one has all partitions. The
parts are spread evenly over the interval.
All clients have the same ones in a round. Or four members start at once, with the broker's
defaults. A member starts when its client is created. Java's starts when it has connected. The
clients take turns within each round. With heartbeats of a second or more they run at the same time,
each in a separate group. "kohort, classic" uses the cooperative-sticky assignor and
the same heartbeat interval. The aim for a leave is the median of confluent-kafka."""
PARTITIONS = 8
LOWERED = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "500",
}
"""Settings of the broker: its minimum of the heartbeat interval is 5 seconds otherwise."""
SETTLED_S = 1.5
"""Time for which a group is left alone, longer than the broker's interval of assignments, 1 s."""
HEARTBEATS_S = (5.0, 1.0, 0.1)
JOIN, LEAVE, FOUR = "second joins", "one leaves", "four at once"
KOHORT, CLASSIC, CONFLUENT, JAVA = "kohort", "kohort, classic", "confluent-kafka", "Java"
AIMS: dict[tuple[str, float], tuple[float, float | None]] = {
    (JOIN, 5.0): (3.2, 5.2),
    (JOIN, 1.0): (0.7, None),
    (JOIN, 0.1): (0.12, None),
    (FOUR, 5.0): (6.0, None),
}
"""(event, heartbeat interval) -> aims for the median and the maximum. When a member leaves, the
median of confluent-kafka in the same run is the aim."""


class Case(NamedTuple):
    """One client with one heartbeat interval, for one or several events of a group."""

    client: str
    heartbeat_s: float
    together: bool
    """True if four members start at once, else a second one joins, and leaves later."""

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the measured events."""
        return (FOUR,) if self.together else (JOIN, LEAVE)


class JavaMember(Java):
    """Member of kafka-clients that polls for 100 ms at a time, as the other members do.

    VerifiableConsumer polls without a limit. Its rebalances then wait for one more heartbeat.
    """

    def command(self, settings: Settings, folder: Path) -> list[str]:
        """Return the command of the compiled member."""
        words = settings.bootstrap_servers, settings.topic, settings.group, settings.client_id
        return [*_compiled()[1], *words]


@functools.cache
def _compiled() -> tuple[tempfile.TemporaryDirectory[str], list[str]]:
    """Return a folder with Java's member, which lasts as long as the process, and the command."""
    folder = tempfile.TemporaryDirectory()
    return folder, java_program("JavaMember", Path(folder.name))


CLIENTS: dict[str, Make] = {
    KOHORT: Kohort,
    CLASSIC: Kohort,
    CONFLUENT: Confluent,
    JAVA: JavaMember,
}


def cases(heartbeats_s: Collection[float]) -> Iterator[Case]:
    """Yield all cases. Four members start at once with the default interval alone."""
    for heartbeat_s in heartbeats_s:
        for client in CLIENTS:
            yield Case(client, heartbeat_s, together=False)
    if HEARTBEATS_S[0] in heartbeats_s:
        for client in CLIENTS:
            yield Case(client, HEARTBEATS_S[0], together=True)


def batches(heartbeats_s: Collection[float]) -> list[tuple[Case, ...]]:
    """Return the cases that are measured at the same time, each in a separate group.

    A heartbeat interval of a second or more leaves the machine idle. Four starts of a JVM do not.
    """
    found: dict[object, list[Case]] = {}
    for case in cases(heartbeats_s):
        is_alone = case.heartbeat_s < 1 or (case.together and case.client == JAVA)
        found.setdefault(case if is_alone else case[1:], []).append(case)
    return [tuple(some) for some in found.values()]


class Phases(NamedTuple):
    """Parts of a heartbeat interval, in [0, 1), that pass before a member joins and leaves."""

    join: float
    leave: float


def phases(rounds: int, rng: random.Random) -> list[Phases]:
    """Return one pair for each round. The parts are evenly spread, in a random order.

    A rebalance waits for the next heartbeat of a member. With parts drawn at random, the medians
    of few rounds differ by chance.
    """
    joins, leaves = (
        [(number + rng.random()) / rounds for number in range(rounds)] for _ in range(2)
    )
    rng.shuffle(joins)
    rng.shuffle(leaves)
    return [Phases(*pair) for pair in zip(joins, leaves, strict=True)]


class _Group:
    """Members of one client in a group with a heartbeat interval."""

    def __init__(self, case: Case, broker: Broker, topic: str) -> None:
        self._case = case
        self._broker = broker
        self._topic = topic
        self._group = new_group()
        self.members = Members()
        interval = str(round(case.heartbeat_s * 1000))
        if case.client != CLASSIC:
            broker.configure_group(self._group, {"consumer.heartbeat.interval.ms": interval})

    def join(self) -> Member:
        """Start one more member."""
        interval = round(self._case.heartbeat_s * 1000)
        is_classic = self._case.client == CLASSIC
        settings = Settings(
            self._broker.bootstrap_servers,
            self._topic,
            self._group,
            f"m{len(self.members.all)}",
            "cooperative-sticky" if is_classic else None,
            more={"heartbeat_interval_ms": interval, "session_timeout_ms": 45_000}
            if is_classic
            else {},
            protocol="classic" if is_classic else "consumer",
        )
        return self.members.join(CLIENTS[self._case.client], settings)

    def settle(self, *members: Member, since: Callable[[], float]) -> float:
        """Wait until the members share all partitions. Return the seconds from ``since()``."""
        share = PARTITIONS // len(members)

        def look() -> bool:
            owned = [member.owned_now for member in members]
            union = frozenset[int]().union(*owned)
            return all(len(own) == share for own in owned) and len(union) == PARTITIONS

        self.members.wait_until(look)
        return max(m.changes[-1].at for m in members) - since()


def measure(case: Case, broker: Broker, topic: str, phase: Phases) -> dict[str, float]:
    """Return the seconds of each event of the case.

    A member has started when its client was created, or when Java's tool says so. Its JVM is left
    out. The group has settled with the last callback of a member for its share.
    """
    group = _Group(case, broker, topic)
    with group.members:
        if case.together:
            four = [group.join() for _ in range(4)]
            return {FOUR: group.settle(*four, since=lambda: max(m.started_at for m in four))}
        first = group.join()
        group.settle(first, since=time.time)
        time.sleep(SETTLED_S + phase.join * case.heartbeat_s)
        second = group.join()
        joined = group.settle(first, second, since=lambda: second.started_at)
        time.sleep(SETTLED_S)
        left_at = _leave(second, phase.leave * case.heartbeat_s)
        left = group.settle(first, since=lambda: left_at)
        return {JOIN: joined, LEAVE: left}


def _leave(member: Member, pause_s: float) -> float:
    """Let the member leave after a pause between two polls. Return the time of the leave.

    Without the pause it would leave at the end of a poll. The polls of 100 ms keep their distance
    to the heartbeats of another member if these are 100 ms apart too.
    """

    def leave(_: object) -> float:
        time.sleep(pause_s)
        member.start_leaving()
        return time.time()

    return member.call(leave)


def run(rounds: int, rng: random.Random, heartbeats_s: Collection[float] = HEARTBEATS_S) -> str:
    """Measure all cases in turns, and return a Markdown table."""
    values: dict[tuple[Case, str], list[float]] = {
        (case, event): [] for case in cases(heartbeats_s) for event in case.events
    }
    with kafka(LOWERED) as server:
        broker = Broker(server.bootstrap_servers)
        topic = broker.create_topic("t", PARTITIONS)
        for client in CLIENTS:  # to warm up
            measure(Case(client, HEARTBEATS_S[-1], together=False), broker, topic, Phases(0.5, 0.5))
        drawn = phases(rounds, rng)
        for number, some in turns(rounds, batches(heartbeats_s), warm_up=False):
            with ThreadPoolExecutor(len(some)) as pool:
                phase = drawn[number - 1]
                measured = pool.map(
                    functools.partial(measure, broker=broker, topic=topic, phase=phase), some
                )
            for case, took in zip(some, measured, strict=True):
                shown = ", ".join(f"{event} {seconds:.2f}" for event, seconds in took.items())
                print(f"{number}: {case.heartbeat_s:g} s, {case.client}: {shown}", flush=True)
                for event, seconds in took.items():
                    values[case, event].append(seconds)
    head = "event", "heartbeat", "client", "median s", "best s", "worst s", "aim s", "reached"
    return table(head, "l" * 8, rows(values))


def rows(values: dict[tuple[Case, str], list[float]]) -> Iterator[list[str]]:
    """Yield the cells of each case. The aims are for kohort by the consumer protocol only."""
    for event in (JOIN, LEAVE, FOUR):
        for (case, measured), times in values.items():
            if measured != event:
                continue
            aims: tuple[float, float | None] | None = None
            if case.client == KOHORT:
                peer = statistics.median(values[case._replace(client=CONFLUENT), event])
                aims = AIMS.get((event, case.heartbeat_s), (peer, None))
            figures = statistics.median(times), min(times), max(times)
            shown = [f"{seconds:.2f}" for seconds in figures]
            judged = _judged(figures[0], figures[2], aims)
            yield [event, f"{case.heartbeat_s:g} s", case.client, *shown, *judged]


def _judged(
    median: float, worst: float, aims: tuple[float, float | None] | None
) -> tuple[str, str]:
    """Return the cells of the aims and whether they are reached."""
    if aims is None:
        return "", ""
    aim, limit = aims
    reached = median <= aim and (limit is None or worst <= limit)
    text = f"{aim:.2f}" if limit is None else f"{aim:.2f}, at most {limit:.2f}"
    return text, "yes" if reached else "no"
