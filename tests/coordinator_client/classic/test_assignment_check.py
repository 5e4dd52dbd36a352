"""The check of a cooperative assignor's assignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from kohort.coordinator_client.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Subscription,
)
from kohort.coordinator_client.classic._assignment_check import check_assignments
from kohort.errors import AssignorError
from kohort.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLUSTER = ClusterTopics({"t": 2})


class Named(PartitionAssignor):
    name: ClassVar[str] = "named"

    def assign(
        self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
    ) -> Assignments:
        return {}


class Sticky(Named):
    name: ClassVar[str] = "cooperative-sticky"


def _owners(generation_of_b: int = 3) -> dict[str, Subscription]:
    return {
        "a": Subscription(("t",), owned=(T0, T1), generation=3),
        "b": Subscription(("t",), generation=generation_of_b),
    }


def test_members_that_the_assignor_left_out_get_nothing() -> None:
    assigned = check_assignments(Named(), CLUSTER, _owners(), {"a": [T0]}, cooperative=True)
    assert assigned == {"a": Assignment((T0,)), "b": Assignment(())}


def test_pairs_are_as_good_as_topic_partitions() -> None:
    pairs: Any = {"a": [("t", 0)]}  # user code may return plain tuples
    assigned = check_assignments(Named(), CLUSTER, _owners(), pairs, cooperative=False)
    assert assigned["a"] == Assignment((T0,))


def test_a_partition_may_not_go_from_owner_to_owner_at_once() -> None:
    with pytest.raises(AssignorError, match="from a to b in one rebalance"):
        check_assignments(Named(), CLUSTER, _owners(), {"a": [T0], "b": [T1]}, cooperative=True)
    check_assignments(Named(), CLUSTER, _owners(), {"a": [T0], "b": [T1]}, cooperative=False)
    check_assignments(Sticky(), CLUSTER, _owners(), {"a": [T0], "b": [T1]}, cooperative=True)


def test_partitions_of_an_earlier_generation_are_not_owned() -> None:
    members = _owners(generation_of_b=4)
    check_assignments(Named(), CLUSTER, members, {"a": [T0], "b": [T1]}, cooperative=True)
