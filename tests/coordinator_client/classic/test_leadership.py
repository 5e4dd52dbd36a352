"""Look-ups of the assignment by members that watch topics and have not assigned them."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client._lookups import described_assignment
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.coordinator_client.classic._embedded_protocol import write_assignment
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    CallRevoked,
    DescribeAssignment,
    JoinGroup,
    WatchTopics,
)
from kohort.coordinator_client.machine._events import AssignmentDescribed, TopicsChanged
from kohort.errors import ErrorCode, KafkaTimeoutError
from kohort.protocol.messages import DescribeGroupsResponse
from tests.coordinator_client.scripts import Script, parts


def _returned_static_leader(**changes: Any) -> Script:
    """Return a static leader that has restarted, with a subscription to t and u."""
    script = Script(static=True, **changes)
    script.to_joining()
    members = {"me": Subscription(("t", "u"))}
    protocol = script.settings.protocols[0]
    script.join_answer(leader="me", members=members, skip_assignment=True, protocol=protocol)
    script.sync_answer(parts(0, 1, 2, 3))
    script.poll()
    script.called_back(CallAssigned)
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.at(MemberState.STABLE)
    return script


def test_leader_does_not_rejoin_for_its_assignors_first_metadata() -> None:
    """The assignor fetches the metadata of topics that the leader has not seen yet."""
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.feed(TopicsChanged(ClusterTopics({}), frozenset()))
    script.feed(TopicsChanged(ClusterTopics({"t": 4}), frozenset({"t"})))
    script.assign({"me": parts(0, 1, 2, 3)})
    script.feed(TopicsChanged(ClusterTopics({"t": 4})))
    script.sync_answer(parts(0, 1, 2, 3))
    script.poll()
    script.called_back(CallAssigned)
    assert script.at(MemberState.STABLE)
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    assert script.machine.join_reason == "partitions changed: t 4 -> 5"


def test_leader_rejoins_if_topics_change_while_its_assignor_runs() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.feed(TopicsChanged(ClusterTopics({"t": 5}), frozenset({"t"})))
    script.assign({"me": parts(0, 1, 2, 3)})
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    script.sync_answer(parts(0, 1, 2, 3))
    script.poll()
    script.called_back(CallAssigned)
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "partitions changed: t 4 -> 5"


def test_a_returned_leader_rejoins_for_partitions_without_owner() -> None:
    script = _returned_static_leader()
    look_up = script.take(DescribeAssignment)
    script.feed(AssignmentDescribed(look_up.token, ClusterTopics({"t": 4})))
    assert script.at(MemberState.STABLE), "the topics come after it"
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "partitions changed: u 0 -> 2"


@pytest.mark.parametrize("described", [None, ClusterTopics({"t": 4, "u": 2})])
def test_a_returned_leader_stays_if_all_partitions_have_owners(
    described: ClusterTopics | None,
) -> None:
    script = _returned_static_leader()
    script.feed(AssignmentDescribed(script.take(DescribeAssignment).token, described))
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.at(MemberState.STABLE)
    assert not script.has(DescribeAssignment)
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 3})))
    assert script.machine.join_reason == "partitions changed: u 2 -> 3"


def test_a_returned_leader_repeats_a_look_up_that_failed() -> None:
    script = _returned_static_leader()
    script.refuse(DescribeAssignment, KafkaTimeoutError("late"))
    assert not script.has(DescribeAssignment)
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.has(DescribeAssignment)
    assert script.at(MemberState.STABLE)


def test_a_returned_leader_trusts_an_assignor_of_the_user() -> None:
    """The assignor may leave partitions without an owner."""
    script = _returned_static_leader(protocols=("mine",))
    assert not script.has(DescribeAssignment)


def _hosted(*topics: str) -> Script:
    """Return a classic member of a consumer group, which names no leader. Only topic t exists."""
    script = Script()
    script.subscribe(*topics)
    script.poll()
    script.join_answer(leader="")
    assert script.take(WatchTopics).topics == {"t", *topics}
    script.feed(TopicsChanged(ClusterTopics({"t": 4}), frozenset({"t"})))
    script.sync_answer(parts(0, 1))
    script.poll()
    script.called_back(CallAssigned)
    assert not script.machine.is_leader
    assert not script.has(DescribeAssignment)
    return script


def test_a_member_without_leader_rejoins_in_a_classic_group() -> None:
    script = _hosted()
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    assert script.at(MemberState.STABLE)
    look_up = script.take(DescribeAssignment)
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    assert not script.has(DescribeAssignment), "one at a time"
    script.feed(AssignmentDescribed(look_up.token, ClusterTopics({"t": 4})))
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "partitions changed: t 4 -> 5"


def test_a_member_without_leader_stays_in_a_consumer_group() -> None:
    script = _hosted()
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    script.feed(AssignmentDescribed(script.take(DescribeAssignment).token, None))
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    assert script.at(MemberState.STABLE)
    assert not script.has(DescribeAssignment)
    script.feed(TopicsChanged(ClusterTopics({"t": 6})))
    assert script.has(DescribeAssignment), "the group may have become classic meanwhile"


def test_a_member_without_leader_looks_up_when_a_topic_appears() -> None:
    script = _hosted("t", "u")
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 1})))
    script.feed(AssignmentDescribed(script.take(DescribeAssignment).token, ClusterTopics({"t": 4})))
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 1})))
    assert script.machine.join_reason == "partitions changed: u 0 -> 1"


def test_a_new_generation_ends_the_look_up_of_the_assignment() -> None:
    script = _hosted()
    script.feed(TopicsChanged(ClusterTopics({"t": 5})))
    look_up = script.take(DescribeAssignment)
    script.beat(27)
    script.poll()
    script.called_back(CallRevoked)
    script.join_answer(generation=2)
    assert look_up.token in script.cancelled
    assert WatchTopics(frozenset()) in script.commands


def _returned_follower(*topics: str, **changes: Any) -> Script:
    """Return a static follower that has restarted with these topics, and has t 0 and t 1."""
    script = Script(static=True, **changes)
    script.subscribe(*topics)
    script.poll()
    script.join_answer(protocol=script.settings.protocols[0])
    script.sync_answer(parts(0, 1))
    script.poll()
    script.called_back(CallAssigned)
    assert script.at(MemberState.STABLE)
    return script


def test_a_returned_follower_rejoins_for_a_topic_without_owner() -> None:
    script = _returned_follower("t", "u")
    look_up = script.take(DescribeAssignment)
    assert look_up.topics == script.take(WatchTopics).topics == {"t", "u"}
    script.feed(AssignmentDescribed(look_up.token, ClusterTopics({"t": 4})))
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.machine.join_reason == "partitions changed: u 0 -> 2"
    script.poll()
    script.called_back(CallRevoked)
    join = script.take(JoinGroup)
    assert (join.member_id, join.generation) == ("me", 1), "so that the metadata differs"


def test_a_returned_follower_stays_if_all_topics_have_owners() -> None:
    script = _returned_follower("t", "u")
    look_up = script.take(DescribeAssignment)
    script.feed(AssignmentDescribed(look_up.token, ClusterTopics({"t": 4, "u": 2})))
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2})))
    assert script.at(MemberState.STABLE)


def test_a_returned_follower_repeats_a_failed_look_up() -> None:
    script = _returned_follower("t", "u")
    script.refuse(DescribeAssignment, KafkaTimeoutError("late"))
    assert not script.has(DescribeAssignment)
    script.beat()
    assert script.has(DescribeAssignment)


@pytest.mark.parametrize(
    ("topics", "changes"),
    [
        pytest.param(["t"], {}, id="all topics"),
        pytest.param(["t", "u"], {"protocols": ("mine",)}, id="assignor of the user"),
    ],
)
def test_a_returned_follower_looks_nothing_up_in_vain(
    topics: list[str], changes: dict[str, Any]
) -> None:
    assert not _returned_follower(*topics, **changes).has(DescribeAssignment)


def test_a_known_static_follower_looks_nothing_up() -> None:
    """The coordinator has compared its subscription with the one before."""
    script = _returned_follower("t")
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.subscribe("t", "u")
    script.poll()
    script.called_back(CallRevoked)
    script.join_answer(generation=2)
    script.sync_answer(parts(0, 1))
    assert not script.has(DescribeAssignment)


# The description of a group

_BOTH = frozenset({"t", "u"})

Group = DescribeGroupsResponse.DescribedGroup
GroupMember = DescribeGroupsResponse.DescribedGroupMember


def _described(*assignments: bytes, **fields: Any) -> DescribeGroupsResponse:
    members = [GroupMember(member_assignment=each) for each in assignments]
    values: dict[str, Any] = {"group_state": "Stable", "protocol_type": "consumer", **fields}
    return DescribeGroupsResponse(groups=[Group(members=members, **values)])


def _written(*numbers: int, topic: str = "t") -> bytes:
    return write_assignment(Assignment(tuple(sorted(parts(*numbers, topic=topic)))))


def test_the_partitions_of_all_members_are_counted() -> None:
    response = _described(_written(0, 2), _written(1), _written(0, topic="u"), b"")
    assert described_assignment(response, _BOTH) == ClusterTopics({"t": 3, "u": 1})
    assert described_assignment(response, frozenset({"t"})) == ClusterTopics({"t": 3})


@pytest.mark.parametrize(
    "response",
    [
        _described(_written(0), group_state="PreparingRebalance"),
        _described(group_state="Dead"),
        _described(_written(0), protocol_type="connect"),
        _described(error_code=ErrorCode.GROUP_ID_NOT_FOUND),
        _described(_written(0), b"\xff\xff\xff"),
        DescribeGroupsResponse(),
    ],
)
def test_no_assignment_is_known_unless_the_group_is_stable(
    response: DescribeGroupsResponse,
) -> None:
    assert described_assignment(response, _BOTH) is None
