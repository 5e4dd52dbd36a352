"""Members of a group on Apache Kafka that leave, crash, stall and lose their broker under load.

A plain run has two of each, the full matrix ten of each. The figures are printed at the end.
"""

from __future__ import annotations

import itertools
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.brokers import Broker
from tests.interop.reporting import ReportingMember, SteadyFeed, read_count, settled
from tests.interop.waiting import wait_until
from tests.support.kafka_server import KafkaServer

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(600)]
PARTITIONS = 6
RATE = 500  # records a second
SESSION_S = 2.0
Unique = Callable[[str], str]
ROUNDS = [2, pytest.param(10, marks=pytest.mark.long)]


class Group:
    """Group whose members change while one feed writes."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        session_ms = str(int(SESSION_S * 1000))
        self._arguments = (broker.bootstrap_servers, topic, group, session_ms, "range")
        self.all: list[ReportingMember] = []
        self.present: list[ReportingMember] = []
        self.feed = SteadyFeed(broker.bootstrap_servers, topic, RATE)

    def join(self) -> None:
        """Start one more member."""
        self.all.append(ReportingMember(*self._arguments))
        self.present.append(self.all[-1])

    def wait_until_lost(self, member: ReportingMember, times: int) -> None:
        """Wait until the member has reported lost partitions ``times`` times."""
        wait_until(lambda: len(member.reported("lost")) >= times)

    def catch_up(self) -> None:
        """Wait until all records so far, and one more, are read."""
        already = len(self.feed.written)
        wait_until(lambda: len(self.feed.written) > already)
        due = set(self.feed.written)
        wait_until(lambda: due <= read_count(self.all).keys())

    def take(self) -> ReportingMember:
        """Return the longest-running member. It no longer counts as present."""
        return self.present.pop(0)

    def settle(self, since: float = 0.0) -> float:
        """Wait until the present members own everything. Return the seconds that it took."""

        def look() -> bool:
            latest = max((member.settled_at for member in self.present), default=0.0)
            return settled(self.present, PARTITIONS) and latest > since

        wait_until(look, explain=lambda: [sorted(member.owned) for member in self.present])
        return max(member.settled_at for member in self.present) - since

    def finish(self) -> dict[tuple[int, int], int]:
        """End the feed, wait until all is read, and return the records that were read more than
        once.
        """
        self.feed.stop()
        written = set(self.feed.written)
        wait_until(
            lambda: written <= read_count(self.all).keys(),
            explain=lambda: sorted(written - read_count(self.all).keys())[:20],
        )
        for member in self.present:
            member.leave()
        times = read_count(self.all)
        assert times.keys() == written
        return {place: number for place, number in times.items() if number > 1}


@pytest.fixture
def group(apache: Broker, unique: Unique) -> Iterator[Group]:
    """Three members that share the topic."""
    group = Group(apache, apache.create_topic(unique("faults"), PARTITIONS), unique("faults"))
    try:
        for _ in range(3):
            group.join()
        group.settle()
        yield group
    finally:
        for member in group.all:
            if member.tool.is_running:
                member.tool.kill()


def report(what: str, took: list[float], duplicates: int) -> None:
    print(
        f"{what}: {len(took)} times; settled after {statistics.median(took):.2f} s in the median, "
        f"{max(took):.2f} s at most; {duplicates} records read twice"
    )


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_member_that_leaves_costs_no_record_and_no_duplicate(group: Group, rounds: int) -> None:
    took = []
    for _ in range(rounds):
        leaver, started = group.take(), time.monotonic()
        leaver.start_leaving()
        took.append(group.settle(started))
        leaver.leave()
        group.join()
        group.settle()
    twice = group.finish()
    report("left", took, len(twice))
    assert twice == {}


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_killed_member_costs_no_record_and_at_most_its_last_poll_twice(
    group: Group, rounds: int
) -> None:
    took, tails = [], set()
    for _ in range(rounds):
        victim, started = group.take(), time.monotonic()
        victim.signal(signal.SIGKILL)
        took.append(group.settle(started))
        victim.tool.kill()
        tails |= set(itertools.chain(*victim.reads[-1:]))
        group.join()
        group.settle()
    twice = group.finish()
    report("killed", took, len(twice))
    assert twice.keys() <= tails, "more than what the killed member had not committed"


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_member_paused_for_longer_than_its_session_is_fenced_and_comes_back(
    group: Group, rounds: int
) -> None:
    took, tails = [], set()
    for _ in range(rounds):
        sleeper, started = group.take(), time.monotonic()
        before = len(sleeper.reported("lost"))
        sleeper.signal(signal.SIGSTOP)
        took.append(group.settle(started))
        threading.Event().wait(started + 1.5 * SESSION_S - time.monotonic())
        reads = len(sleeper.reads)
        sleeper.signal(signal.SIGCONT)
        group.present.append(sleeper)
        group.wait_until_lost(sleeper, before + 1)
        group.settle()
        lost = sleeper.reported("lost")[-1]["at"]
        # These are uncommitted records, and those that poll() was about to return when it stopped.
        tails |= set(itertools.chain(*sleeper.reads[max(0, reads - 1) : reads + 1]))
        refused = [one for one in sleeper.reported("refused") if one["at"] >= lost]
        assert [one["error"] for one in refused] == ["CommitFailedError"]
    twice = group.finish()
    report("paused", took, len(twice))
    assert twice.keys() <= tails, "more than what was under way when the member was paused"


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_broker_that_restarts_under_the_group_costs_no_record(
    group: Group, kafka: KafkaServer, rounds: int
) -> None:
    took = []
    for _ in range(rounds):
        kafka.stop()
        kafka.start()
        started = time.monotonic()
        group.catch_up()
        took.append(time.monotonic() - started)
        group.settle()
    twice = group.finish()
    report("broker restarted", took, len(twice))
