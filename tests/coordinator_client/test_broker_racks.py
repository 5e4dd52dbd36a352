"""Racks of brokers that are away: neither their absence nor their return is a change."""

from __future__ import annotations

import pytest

from kohort.coordinator_client._watched_topics import BrokerRacks
from kohort.transport import BrokerAddress
from kohort.types import TopicPartition
from tests.coordinator_client.fakes import FakeCluster, topic

T0 = TopicPartition("t", 0)
ALL = (1, 2, 3)


def _cluster(
    *present: int, replicas: tuple[int, ...] = (1, 2, 3), prefix: str = "r"
) -> FakeCluster:
    """Return a cluster in which only these brokers are present."""
    cluster = FakeCluster()
    cluster.topics["t"] = topic(1, replicas=replicas)
    cluster.brokers = {node: BrokerAddress(node, "h", node, f"{prefix}{node}") for node in present}
    return cluster


def test_absent_broker_keeps_its_last_rack() -> None:
    racks = BrokerRacks()
    assigned = racks.for_assignment(_cluster(1, 2, 3).metadata, ["t"])
    assert assigned.racks == {T0: frozenset({"r1", "r2", "r3"})}
    assert racks.for_comparison(_cluster(1, 2).metadata, ["t"]) == assigned
    assert racks.for_comparison(_cluster(1, 2, 3).metadata, ["t"]) == assigned


def test_rack_stays_unknown_until_the_next_assignment() -> None:
    racks = BrokerRacks()
    assigned = racks.for_assignment(_cluster(1, 2).metadata, ["t"])
    assert assigned.racks == {T0: frozenset({"r1", "r2"})}
    assert racks.for_comparison(_cluster(1, 2, 3).metadata, ["t"]) == assigned
    again = racks.for_assignment(_cluster(1, 2, 3).metadata, ["t"])
    assert again.racks == {T0: frozenset({"r1", "r2", "r3"})}


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(_cluster(1, 2, 4, replicas=(1, 2, 4)), id="moved to a new broker"),
        pytest.param(_cluster(1, 2, prefix="new"), id="other racks while one is away"),
    ],
)
def test_other_racks_are_a_change(later: FakeCluster) -> None:
    racks = BrokerRacks()
    assigned = racks.for_assignment(_cluster(1, 2, 3).metadata, ["t"])
    assert racks.for_comparison(later.metadata, ["t"]) != assigned
