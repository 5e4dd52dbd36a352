"""Assignors with small groups, and the ways to name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from kohort.coordinator_client.assignors import (
    BUILT_IN,
    Assignment,
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    Subscription,
    common_protocol,
    members_in_order,
    resolve_assignors,
)
from kohort.coordinator_client.assignors._base import PartitionsByMember
from kohort.errors import InvalidOptionError
from kohort.types import ConsumerGroupMetadata, TopicPartition


def _members(*names: str, topics: tuple[str, ...] = ("t",)) -> dict[str, Subscription]:
    return {name: Subscription(topics) for name in names}


def _numbers(result: PartitionsByMember, topic: str = "t") -> dict[str, list[int]]:
    return {
        member: [tp.partition for tp in partitions if tp.topic == topic]
        for member, partitions in result.items()
    }


def test_range_deals_ten_partitions_to_three_in_runs() -> None:
    result = RangeAssignor().assign(ClusterTopics({"t": 10}), _members("c", "a", "b"))
    assert _numbers(result) == {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}


def test_range_gives_first_member_the_surplus_of_both_topics() -> None:
    members = _members("a", "b", topics=("t", "u"))
    result = RangeAssignor().assign(ClusterTopics({"t": 3, "u": 3}), members)
    assert {member: len(given) for member, given in result.items()} == {"a": 4, "b": 2}


@pytest.mark.parametrize("cls", BUILT_IN)
def test_more_members_than_partitions_leave_some_idle(cls: type[PartitionAssignor]) -> None:
    result = cls().assign(ClusterTopics({"t": 2}), _members("a", "b", "c"))
    assert result == {"a": [TopicPartition("t", 0)], "b": [TopicPartition("t", 1)], "c": []}


@pytest.mark.parametrize("cls", BUILT_IN)
def test_topics_that_do_not_exist_and_members_that_want_nothing(
    cls: type[PartitionAssignor],
) -> None:
    assignor = cls()
    members = {**_members("a", topics=("t", "gone")), **_members("b", topics=())}
    result = assignor.assign(ClusterTopics({"t": 1}), members)
    assert result == {"a": [TopicPartition("t", 0)], "b": []}
    assert assignor.assign(ClusterTopics({}), {}) == {}


def test_round_robin_skips_members_not_subscribed_to_the_topic() -> None:
    members = {"a": Subscription(("t",)), "b": Subscription(("t", "u")), "c": Subscription(("u",))}
    result = RoundRobinAssignor().assign(ClusterTopics({"t": 3, "u": 3}), members)
    assert _numbers(result) == {"a": [0, 2], "b": [1], "c": []}
    assert _numbers(result, "u") == {"a": [], "b": [0, 2], "c": [1]}


def test_static_members_come_first_by_their_instance() -> None:
    members = {
        "a": Subscription(("t",)),
        "z": Subscription(("t",), group_instance_id="1"),
        "y": Subscription(("t",), group_instance_id="2"),
    }
    assert members_in_order(members) == ["z", "y", "a"]


def test_names_are_ordered_as_java_orders_them() -> None:
    # Java sorts U+1F600 as two surrogates, which come before U+FF5E.
    assert members_in_order(_members("\uff5e", "\U0001f600")) == ["\U0001f600", "\uff5e"]


class Mine(PartitionAssignor):
    name: ClassVar[str] = "mine"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.COOPERATIVE})

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        return {}


class Both(Mine):
    name: ClassVar[str] = "both"
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(RebalanceProtocol)


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        ("range", ["range"]),
        (["roundrobin", "range"], ["roundrobin", "range"]),
        ("RoundRobinPartitionAssignor", ["roundrobin"]),
        (["org.apache.kafka.clients.consumer.RangeAssignor"], ["range"]),
        (RangeAssignor, ["range"]),
        ([Both, RangeAssignor()], ["both", "range"]),
        (Mine(), ["mine"]),
    ],
)
def test_assignors_are_named_in_many_ways(strategy: Any, names: list[str]) -> None:
    assert [assignor.name for assignor in resolve_assignors(strategy)] == names


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("rang", "did you mean 'range'"),
        (
            "no such thing",
            "The built-in assignors are 'range', 'cooperative-sticky', 'sticky', 'roundrobin'",
        ),
        ([], "is empty"),
        (["range", RangeAssignor], "twice"),
        ([Mine, RangeAssignor], "no rebalance protocol"),
        ([object()], "neither a name"),
        (7, "neither a name"),
        ([int], "neither a name"),
    ],
)
def test_what_is_no_assignor_is_an_error_that_helps(strategy: Any, words: str) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        resolve_assignors(strategy)


def test_highest_protocol_that_all_assignors_support_is_used() -> None:
    assert common_protocol([RangeAssignor()]) is RebalanceProtocol.EAGER
    assert common_protocol([RangeAssignor(), Both()]) is RebalanceProtocol.EAGER
    assert common_protocol([Mine(), Both()]) is RebalanceProtocol.COOPERATIVE
    assert common_protocol([Mine(), RangeAssignor()]) is None


def test_the_topics_can_be_asked_about() -> None:
    cluster = ClusterTopics({"t": 2}, {TopicPartition("t", 0): frozenset({"r"})})
    assert cluster.topics() == {"t"}
    assert cluster.partitions_for_topic("t") == {0, 1}
    assert cluster.partitions_for_topic("u") is None
    assert cluster.replica_racks(TopicPartition("t", 0)) == {"r"}
    assert cluster.replica_racks(TopicPartition("t", 1)) == frozenset()


def test_the_base_class_says_nothing_and_does_nothing() -> None:
    assert Mine().subscription_user_data(["t"]) is None
    Mine().on_assignment(Assignment(()), ConsumerGroupMetadata("g"))
