"""Members of a group on Apache Kafka that leave, crash, stall and lose their broker under load.

Each test runs by both protocols. A plain run has two of each, the full matrix ten of each. The
figures are printed at the end.
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
from tests.interop.reported_group import PARTITIONS, SESSION_S, ReportedGroup
from tests.support.kafka_server import KafkaServer

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(600)]
PROTOCOLS = ("classic", "consumer")
Unique = Callable[[str], str]
ROUNDS = [2, pytest.param(10, marks=pytest.mark.long)]


@pytest.fixture(params=PROTOCOLS)
def group(
    quick_apache: Broker, unique: Unique, request: pytest.FixtureRequest
) -> Iterator[ReportedGroup]:
    """Three members that share the topic."""
    topic = quick_apache.create_topic(unique("faults"), PARTITIONS)
    with ReportedGroup(quick_apache, topic, unique("faults"), request.param) as group:
        for _ in range(3):
            group.join()
        group.settle()
        yield group


def report(group: ReportedGroup, what: str, took: list[float], duplicates: int) -> None:
    median, most = statistics.median(took), max(took)
    print(
        f"{group.protocol}, {what}: {len(took)} times; settled after {median:.2f} s in the median, "
        f"{most:.2f} s at most; {duplicates} records read twice"
    )


@pytest.mark.long  # members that come and go in two rounds
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_member_that_leaves_costs_no_record_and_no_duplicate(
    group: ReportedGroup, rounds: int
) -> None:
    took = []
    for _ in range(rounds):
        leaver, started = group.take(), time.monotonic()
        leaver.start_leaving()
        took.append(group.settle(started))
        leaver.leave()
        group.join()
        group.settle()
    twice = group.finish()
    report(group, "left", took, len(twice))
    assert twice == {}


@pytest.mark.parametrize("rounds", ROUNDS)
def test_killed_member_loses_nothing_and_repeats_only_last_poll(
    group: ReportedGroup, rounds: int
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
    report(group, "killed", took, len(twice))
    assert twice.keys() <= tails, "more than what the killed member had not committed"


@pytest.mark.long  # a session has to end
@pytest.mark.parametrize("rounds", ROUNDS)
def test_member_paused_past_its_session_is_fenced_and_rejoins(
    group: ReportedGroup, rounds: int
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
    report(group, "paused", took, len(twice))
    assert twice.keys() <= tails, "more than what was under way when the member was paused"


@pytest.mark.long  # Kafka is started again
@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_broker_that_restarts_under_the_group_costs_no_record(
    group: ReportedGroup, quick_kafka: KafkaServer, rounds: int
) -> None:
    took = []
    for _ in range(rounds):
        quick_kafka.stop()
        quick_kafka.start()
        started = time.monotonic()
        group.catch_up()
        took.append(time.monotonic() - started)
        group.settle()
    twice = group.finish()
    report(group, "broker restarted", took, len(twice))
