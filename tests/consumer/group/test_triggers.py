"""The triggers of a rebalance. Each is logged once, with its reason."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.testing import MemoryCluster
from tests.consumer.virtual import PROTOCOLS, ClassicConsumer, MemoryConsumer, polled
from tests.support.virtual import run_virtual

SOON = {"metadata_max_age_ms": 5_000}


def _topics(consumer: MemoryConsumer) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, _ in consumer.assignment():
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def _rebalances(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "rebalanced in" in r.getMessage()]


@PROTOCOLS
def test_topics_of_a_pattern_appear_grow_and_vanish(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with MemoryCluster(topics={"a-1": 1, "b": 1}) as cluster:
            consumer = MemoryConsumer(cluster, group_protocol=protocol, **SOON)
            consumer.subscribe(pattern="a-.*")
            async with consumer, polled(consumer, []):

                async def becomes(topics: dict[str, int]) -> None:
                    await cluster.wait_until(lambda: _topics(consumer) == topics, 30)

                await becomes({"a-1": 1})
                cluster.create_topic("a-2", 2)
                await becomes({"a-1": 1, "a-2": 2})
                cluster.add_partitions("a-1", 3)
                await becomes({"a-1": 3, "a-2": 2})
                cluster.delete_topic("a-2")
                await becomes({"a-1": 3})
        first, appeared, grew, vanished = _rebalances(caplog)
        assert "Reason: subscribed" in first
        assert "gained a-1 0, lost none, now 1 partition" in first
        assert "Reason: the subscription changed: a-2 added" in appeared
        if protocol == "classic":
            assert "Reason: partitions changed: a-1 1 -> 3" in grew
        else:  # the coordinator watches the topics
            assert "Reason: the assignment changed" in grew
        assert "gained a-1 1-2" in grew or "gained a-1 0-2" in grew
        assert "a-2" in vanished

    run_virtual(main)


def test_the_leader_watches_the_topics_of_all_members(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with MemoryCluster(topics={"mine": 1, "theirs": 1}) as cluster:
            leader = ClassicConsumer(cluster, "mine", client_id="leader", **SOON)
            other = ClassicConsumer(cluster, "theirs", client_id="other")
            async with leader, polled(leader), other, polled(other):
                await cluster.wait_until(lambda: len(cluster.group("g").members) == 2)
                await cluster.wait_until(lambda: bool(other.assignment() and leader.assignment()))
                caplog.clear()
                cluster.add_partitions("theirs", 2)
                await cluster.wait_until(lambda: len(other.assignment()) == 2, 30)
        lines = _rebalances(caplog)
        assert any("Reason: partitions changed: theirs 1 -> 2" in line for line in lines)

    run_virtual(main)


def _another_topic(consumer: MemoryConsumer) -> None:
    consumer.subscribe(["t", "u"])


def _enforced(consumer: MemoryConsumer) -> None:
    consumer.enforce_rebalance("the weights changed")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("trigger", "reason"),
    [(_another_topic, "the subscription changed: u added"), (_enforced, "the weights changed")],
)
def test_a_rebalance_is_logged_once_with_all_there_is_to_know(
    trigger: Callable[[MemoryConsumer], Any],
    reason: str,
    strategy: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2, "u": 1}) as cluster:
            options: dict[str, Any] = {"partition_assignment_strategy": [strategy]}
            async with MemoryConsumer(cluster, "t", **options) as consumer, polled(consumer):
                await cluster.wait_until(lambda: _topics(consumer) == {"t": 2})
                caplog.clear()
                trigger(consumer)
                await cluster.wait_until(lambda: cluster.group("g").generation == 2)
                await cluster.wait_until(lambda: bool(_rebalances(caplog)), 5)
                assert TopicPartition("t", 0) in consumer.assignment()

    run_virtual(main)
    (line,) = _rebalances(caplog)
    assert line.endswith(f"Reason: {reason}")
    assert re.match(rf"\[g\] rebalanced in [0-9.]+ s.*: generation 2, {strategy}, leader, ", line)
    assert ("gained u 0, lost none" if "u" in reason.split(": ")[-1] else "gained none") in line
    assert [r.levelno for r in caplog.records if "rebalanced in" in r.getMessage()] == [20]
