"""Rolling change of a group's protocol under load on Apache Kafka, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.brokers import Broker
from tests.interop.reported_group import PARTITIONS, ReportedGroup

pytestmark = [
    pytest.mark.long,  # each member is started again, twice
    pytest.mark.real_kafka,
    pytest.mark.timeout(300),
]
Unique = Callable[[str], str]
STRATEGIES = ("range", "cooperative-sticky")


@pytest.fixture
def group(quick_apache: Broker, unique: Unique) -> Iterator[ReportedGroup]:
    """Group without members yet, by the classic protocol."""
    topic = quick_apache.create_topic(unique("rolling"), PARTITIONS)
    with ReportedGroup(quick_apache, topic, unique("rolling"), "classic") as group:
        yield group


def replace(group: ReportedGroup, protocol: str, strategy: str) -> None:
    """Replace the oldest member by one of the protocol, and wait until the group has settled."""
    group.take().leave()
    join(group, protocol, strategy)


def join(group: ReportedGroup, protocol: str, strategy: str) -> None:
    """Let one more member join, and wait until the group has settled."""
    more = {"partition_assignment_strategy": [strategy]} if protocol == "classic" else {}
    group.join(protocol, **more)
    group.settle()
    group.catch_up()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_members_change_their_protocol_and_back(group: ReportedGroup, strategy: str) -> None:
    types = []
    for _ in range(3):
        join(group, "classic", strategy)
    for protocol in ("consumer", "classic"):
        for _ in range(3):
            replace(group, protocol, strategy)
            types.append(group.broker.group_type(group.group))
    twice = group.finish()
    print(f"{strategy}: {len(group.feed.written)} records, {len(twice)} read more than once")
    assert types == ["consumer"] * 5 + ["classic"]
    # A classic member cannot commit while its group rebalances, and may then lose its partitions.
    assert twice.keys() <= {place for member in group.all for place in member.refused}


def test_auto_members_stay_classic_until_the_group_is_empty(group: ReportedGroup) -> None:
    join(group, "classic", "range")
    join(group, "auto", "range")
    assert group.broker.group_type(group.group) == "classic"
    group.take().leave()
    group.settle()
    assert group.broker.group_type(group.group) == "classic"
    group.take().leave()
    for _ in range(2):
        join(group, "auto", "range")
        assert group.broker.group_type(group.group) == "consumer"
    assert group.finish() == {}
