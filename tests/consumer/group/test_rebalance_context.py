"""The cause and the deadline of a rebalance, for listeners that have a parameter for them."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from kohort import ConsumerRebalanceListener
from kohort.listeners import RebalanceContext
from kohort.testing import Cluster, MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    ClassicConsumer,
    MemoryConsumer,
    poll_for,
    polled,
    values,
)
from tests.support.virtual import run_virtual

Partitions = frozenset[TopicPartition]
TIMEOUT = 300.0
"""Seconds of the default max_poll_interval_ms, which is the rebalance timeout, too."""


class Contexts(ConsumerRebalanceListener):
    """A listener that keeps the context of each call, and the time that its deadline leaves."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float]] = []
        self.reasons: list[str] = []

    @property
    def last(self) -> str:
        return self.calls[-1][0] if self.calls else ""

    def _note(self, name: str, rebalance: RebalanceContext) -> None:
        left = rebalance.deadline - anyio.current_time()
        self.calls.append((name, rebalance.cause, round(left, 1)))
        self.reasons.append(rebalance.reason)

    def on_partitions_revoked(self, revoked: Partitions, rebalance: RebalanceContext) -> None:
        self._note("revoked", rebalance)

    def on_partitions_assigned(self, assigned: Partitions, rebalance: RebalanceContext) -> None:
        self._note("assigned", rebalance)


class WithLost(Contexts):
    def on_partitions_lost(self, lost: Partitions, *, rebalance: RebalanceContext) -> None:
        self._note("lost", rebalance)


@EACH_PROTOCOL
def test_context_of_a_close() -> None:
    async def main() -> None:
        listener = Contexts()
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await poll_for(consumer, consumer.assignment)
                await consumer.close(timeout_ms=20_000)
        (name, cause, left), last = listener.calls[0], listener.calls[-1]
        assert (name, cause) == ("assigned", "subscribed")
        assert TIMEOUT - 10 < left <= TIMEOUT
        assert last == ("revoked", "closed", 16.0), "four fifths, the rest is for LeaveGroup"
        assert listener.reasons[-1] == "the consumer was closed"

    run_virtual(main)


@EACH_PROTOCOL
def test_context_of_unsubscribe() -> None:
    async def main() -> None:
        listener = Contexts()
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await poll_for(consumer, consumer.assignment)
                await consumer.unsubscribe()
                assert listener.calls[-1] == ("revoked", "unsubscribed", 5.0)

    run_virtual(main)


@EACH_PROTOCOL
def test_deadline_counts_from_the_notice_of_a_rebalance() -> None:
    async def main() -> None:
        listener = Contexts()
        async with MemoryCluster(topics={"t": 2}) as cluster:
            one = MemoryConsumer(cluster, client_id="one")
            other = MemoryConsumer(cluster, client_id="other")
            async with one, other:
                for number in range(2):
                    cluster.produce("t", ["a"], partition=number)
                one.subscribe(["t"], listener=listener)
                await values(one, 2)
                other.subscribe(["t"])
                async with polled(other):
                    await anyio.sleep(60)  # it holds records, so the callback waits for the poll
                    await poll_for(one, lambda: "revoked" in [each[0] for each in listener.calls])
                _, cause, left = next(each for each in listener.calls if each[0] == "revoked")
                assert cause == "group_changed"
                assert TIMEOUT - 60 <= left <= TIMEOUT - 50

    run_virtual(main)


def test_causes_of_rebalances_of_a_classic_group() -> None:
    async def main() -> None:
        listener = Contexts()
        async with MemoryCluster(topics={"t": 2, "u": 1}) as cluster:
            async with ClassicConsumer(cluster, metadata_max_age_ms=5_000) as consumer:
                changes: list[tuple[Callable[[], object], str]] = [
                    (lambda: consumer.subscribe(["t"], listener=listener), "subscribed"),
                    (consumer.enforce_rebalance, "requested"),
                    (lambda: cluster.add_partitions("t", 3), "topics_changed"),
                    (lambda: consumer.subscribe(["t", "u"], listener=listener), "subscribed"),
                ]
                for change, cause in changes:
                    del listener.calls[:]
                    change()
                    await poll_for(consumer, lambda: listener.last == "assigned")
                    assert {each for _, each, _ in listener.calls} == {cause}

    run_virtual(main)


@EACH_PROTOCOL
def test_lost_partitions_have_a_cause_and_a_deadline_in_the_past() -> None:
    async def main() -> None:
        listener = WithLost()
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a"], partition=0)
            async with MemoryConsumer(cluster, max_poll_interval_ms=20_000) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await values(consumer, 1)
                await anyio.sleep(30)
                await poll_for(consumer, lambda: "lost" in [each[0] for each in listener.calls])
                names = [each[0] for each in listener.calls]
                assert listener.calls[names.index("lost")] == ("lost", "poll_overdue", 0.0)
                assert "poll() was not called" in listener.reasons[names.index("lost")]
                await poll_for(consumer, consumer.assignment)

    run_virtual(main)


@EACH_PROTOCOL
def test_a_removed_member_gets_the_context_through_on_revoked() -> None:
    async def main() -> None:
        listener = Contexts()
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await poll_for(consumer, consumer.assignment)
                await anyio.sleep(3)
                cluster.network_partition()
                await anyio.sleep(60)
                cluster.stop_faults()
                await poll_for(consumer, lambda: "revoked" in [each[0] for each in listener.calls])
                call = next(each for each in listener.calls if each[0] == "revoked")
                assert call == ("revoked", "removed", 0.0)

    run_virtual(main)


def test_the_sync_api_passes_the_context_of_its_own_clock(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    seen: list[tuple[str, float]] = []

    class Mixed:
        def on_partitions_assigned(self, assigned: Partitions) -> None:
            pass

        def on_partitions_revoked(self, _: Partitions, rebalance: RebalanceContext) -> None:
            seen.append((rebalance.cause, rebalance.deadline - time.monotonic()))

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Mixed())
    poll_until(consumer, consumer.assignment)
    consumer.close(timeout_ms=600_000)
    [(cause, left)] = seen
    assert cause == "closed"
    assert 300 < left <= 480
