"""Eager rebalances in the state machine of the classic protocol: joining, leading, following."""

from __future__ import annotations

import logging

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.coordinator_client.classic._embedded_protocol import write_subscription
from kohort.coordinator_client.classic._exchange import MISFITS
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Heartbeat,
    JoinGroup,
    MakeAssignment,
    SyncGroup,
    WatchTopics,
)
from kohort.coordinator_client.machine._events import (
    CommitRejected,
    Event,
    RejoinRequested,
    Subscribed,
    TopicsChanged,
)
from kohort.errors import ErrorCode
from kohort.protocol.messages import JoinGroupResponse
from tests.coordinator_client.scripts import Script, parts


def test_nothing_is_sent_before_the_caller_polls() -> None:
    script = Script()
    script.subscribe()
    assert script.at(MemberState.JOIN_PENDING)
    assert [type(command) for command in script.commands] == [AwaitPoll]
    assert script.machine.next_deadline() is None
    script.poll()
    join = script.take(JoinGroup)
    assert (join.member_id, join.generation, join.topics, join.owned) == (
        "",
        -1,
        frozenset({"t"}),
        frozenset(),
    )


def test_member_rejoins_at_once_with_the_member_id_it_was_given() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(79, member_id="given")
    assert script.take(JoinGroup).member_id == "given"
    assert script.at(MemberState.JOINING)
    assert script.machine.statistics().join_obstruction is None  # it is the usual first response


def test_a_follower_syncs_with_nothing_and_owns_what_it_gets() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(generation=7)
    sync = script.take(SyncGroup)
    assert (sync.generation, sync.member_id, sync.protocol, sync.assignments) == (
        7,
        "me",
        "range",
        {},
    )
    script.commands.append(sync)
    script.sync_answer(parts(0, 1))
    assert script.at(MemberState.RECONCILING)
    assert script.machine.owned == frozenset()
    script.poll()
    assigned = script.take(CallAssigned)
    assert (assigned.added, assigned.assignment) == (parts(0, 1), parts(0, 1))
    assert script.machine.owned == parts(0, 1), "the listener sees the new assignment"


def test_the_leader_deals_what_the_members_said_and_hands_it_in() -> None:
    script = Script()
    script.to_joining()
    members = {"me": Subscription(("t",)), "other": Subscription(("t", "u"))}
    script.join_answer(leader="me", members=members)
    assert script.at(MemberState.ASSIGNING)
    assert script.take(WatchTopics).topics == {"t", "u"}
    make = script.take(MakeAssignment)
    assert make.members == members
    script.commands.append(make)
    script.assign({"me": parts(0), "other": parts(1)})
    assert script.at(MemberState.SYNCING)
    assert script.take(SyncGroup).assignments == {
        "me": Assignment(tuple(parts(0))),
        "other": Assignment(tuple(parts(1))),
    }


def test_a_static_leader_that_came_back_does_not_deal() -> None:
    script = Script(static=True)
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))}, skip_assignment=True)
    assert script.at(MemberState.SYNCING)
    assert script.take(SyncGroup).assignments == {}
    assert script.machine.is_leader


def test_a_static_leader_that_came_back_learns_the_topics() -> None:
    """The leader's metadata may arrive after its assignment. The topics have not changed then."""
    script = Script(static=True)
    script.to_joining()
    members = {"me": Subscription(("t", "u", "v"))}
    script.join_answer(leader="me", members=members, skip_assignment=True)
    script.feed(TopicsChanged(ClusterTopics({}), frozenset()))
    script.sync_answer(parts(0, 1, 2, 3))
    script.poll()
    script.called_back(CallAssigned)
    script.feed(TopicsChanged(ClusterTopics({"t": 4}), frozenset({"t", "v"})))
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2}), frozenset({"t", "u", "v"})))
    assert script.at(MemberState.STABLE)
    script.feed(TopicsChanged(ClusterTopics({"t": 4, "u": 2, "v": 1})))
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "partitions changed: v 0 -> 1"


def test_assigned_is_called_even_when_nothing_is() -> None:
    script = Script()
    script.to_syncing()
    script.sync_answer()
    script.poll()
    assert script.called_back(CallAssigned) == frozenset()
    assert script.at(MemberState.STABLE)


def test_a_rebalance_is_flagged_and_waits_for_the_caller() -> None:
    script = Script()
    script.to_stable()
    assert not script.machine.needs_poll
    script.beat(27)
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.needs_poll
    assert script.machine.owned == parts(0, 1)
    script.beat(27)
    script.beat(27)
    assert [type(command) for command in script.commands] == [AwaitPoll]


@pytest.mark.parametrize(
    ("event", "refreshes"),
    [
        (RejoinRequested("please"), True),
        (CommitRejected(27, 1, "me"), True),
        (CommitRejected(25, 1, "me"), True),
        (Subscribed(frozenset({"t", "u"})), False),
        (TopicsChanged(ClusterTopics({"t": 5})), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_topics_are_refreshed_unless_metadata_was_the_reason(event: Event, refreshes: bool) -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.assign({"me": parts(0)})
    script.sync_answer(parts(0))
    (wait,) = (command for command in script.commands if isinstance(command, AwaitPoll))
    assert not wait.refreshes_topics  # after the join it is too late
    script.poll()
    script.called_back(CallAssigned)
    script.feed(event)
    assert script.take(AwaitPoll).refreshes_topics is refreshes


def test_rebalance_after_another_one_refreshes_the_topics() -> None:
    script = Script()
    script.to_reconciling()
    script.beat(27)
    script.poll()
    script.called_back(CallAssigned)
    assert script.take(AwaitPoll).refreshes_topics


def test_an_eager_member_gives_all_up_before_it_joins_again() -> None:
    script = Script()
    script.to_stable()
    script.beat(27)
    script.poll()
    assert script.at(MemberState.REVOKING)
    assert script.machine.owned == parts(0, 1), "commits in the callback are accepted"
    script.beat(27)
    assert script.called_back(CallRevoked) == parts(0, 1)
    join = script.take(JoinGroup)
    assert (join.member_id, join.owned) == ("me", frozenset())
    script.commands.append(join)
    script.join_answer(generation=2)
    script.sync_answer(parts(1, 2))
    script.poll()
    assert script.called_back(CallAssigned) == parts(1, 2)
    record = script.machine.history[-1]
    assert (record.gained, record.lost, record.generation) == (parts(2), parts(0), 2)


def test_revoked_is_not_called_with_nothing() -> None:
    script = Script()
    script.to_syncing()
    script.sync_answer()
    script.poll()
    script.called_back(CallAssigned)
    script.beat(27)
    script.poll()
    assert script.at(MemberState.JOINING)
    assert not script.has(CallRevoked)


def test_join_and_sync_go_on_when_the_caller_has_left_poll() -> None:
    script = Script()
    script.to_joining()
    script.join_answer()
    script.sync_answer(error_code=27)
    assert script.at(MemberState.JOINING)
    script.join_answer(generation=2)
    script.sync_answer(parts(3))
    assert script.at(MemberState.RECONCILING)
    assert not script.has(CallAssigned), "callbacks wait for the next poll"
    script.poll()
    assert script.called_back(CallAssigned) == parts(3)


def test_heartbeats_continue_until_sync_and_during_callbacks() -> None:
    script = Script()
    script.to_syncing()
    script.beat()
    script.sync_answer(parts(0))
    script.beat()
    script.poll()
    script.beat()
    script.called_back(CallAssigned)
    script.beat()
    assert script.at(MemberState.STABLE)


def test_heartbeat_error_of_an_earlier_generation_is_ignored() -> None:
    script = Script()
    script.to_stable()
    script.beat(27)
    script.wait(3)
    stale = script.take(Heartbeat)
    script.poll()
    script.called_back(CallRevoked)
    script.join_answer(generation=2)
    script.commands.append(stale)
    script.heartbeat_answer(22)
    assert script.at(MemberState.SYNCING)
    assert script.machine.generation == 2


def test_a_rebalance_asked_for_in_the_callback_follows_at_once() -> None:
    script = Script()
    script.to_reconciling()
    script.poll()
    script.feed(RejoinRequested("an extra round"))
    script.called_back(CallAssigned)
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "an extra round"


def test_a_new_subscription_rebalances() -> None:
    script = Script()
    script.to_stable()
    script.subscribe("t", "u")
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    script.called_back(CallRevoked)
    assert script.take(JoinGroup).topics == {"t", "u"}


def test_the_same_subscription_again_changes_nothing() -> None:
    script = Script()
    script.to_stable()
    script.subscribe("t")
    assert script.at(MemberState.STABLE)


def test_subscription_changed_while_joining_causes_a_rejoin() -> None:
    script = Script()
    script.to_joining()
    script.subscribe("t", "u")
    script.join_answer()
    script.sync_answer(parts(0))
    script.poll()
    script.called_back(CallAssigned)
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason.startswith("the subscription changed: ")


def test_an_assignment_for_an_outdated_subscription_is_not_taken() -> None:
    script = Script()
    script.to_joining()
    script.subscribe("u")
    script.join_answer()
    script.sync_answer(parts(0))
    assert script.at(MemberState.JOINING)
    assert script.take(JoinGroup).topics == {"u"}


def test_member_rejoins_with_new_metadata_when_topics_do_not_fit() -> None:
    """The coordinator gives a restarted static member the assignment of its former process."""
    script = Script(static=True)
    script.to_syncing()
    script.sync_answer(parts(0, topic="old"))
    script.wait(1)
    join = script.take(JoinGroup)
    assert (join.member_id, join.generation) == ("me", 1), "other metadata than before"
    script.commands.append(join)
    script.join_answer(generation=2)
    script.sync_answer(parts(0))
    script.poll()
    assert script.called_back(CallAssigned) == parts(0)


def test_member_keeps_what_fits_when_topics_never_fit(caplog: pytest.LogCaptureFixture) -> None:
    script = Script()
    script.to_syncing()
    for generation in range(2, 2 + MISFITS):
        script.sync_answer(parts(0) | parts(1, topic="x\ny"))
        script.wait(2)
        script.join_answer(generation=generation)
    assert not caplog.text
    script.sync_answer(parts(0) | parts(1, topic="x\ny"))
    assert "x\\ny 1: the leader's assignor range assigned" in caplog.text
    script.poll()
    assert script.called_back(CallAssigned) == parts(0)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.poll()
    script.called_back(CallRevoked)
    script.join_answer(generation=9)
    script.sync_answer(parts(0) | parts(1, topic="x\ny"))
    assert script.at(MemberState.RECONCILING), "one warning for each rebalance, no more rejoins"


def test_the_leader_deals_again_when_partitions_are_added() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.assign({"me": parts(0, 1, 2, 3)})
    script.sync_answer(parts(0, 1, 2, 3))
    script.poll()
    script.called_back(CallAssigned)
    script.feed(TopicsChanged(ClusterTopics({"t": 4})))
    assert script.at(MemberState.STABLE)
    script.feed(TopicsChanged(ClusterTopics({"t": 6})))
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.join_reason == "partitions changed: t 4 -> 6"


def test_a_follower_leaves_watching_to_the_leader() -> None:
    script = Script()
    script.to_stable()
    script.feed(TopicsChanged(ClusterTopics({"t": 9})))
    assert script.at(MemberState.STABLE)


def test_member_with_unreadable_subscription_gets_no_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script()
    script.to_joining()
    members = {"me": Subscription(("t",)), "odd": Subscription(("t",))}
    Member = JoinGroupResponse.JoinGroupResponseMember
    script.answer(
        script.take(JoinGroup),
        JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            leader="me",
            member_id="me",
            members=[
                Member(member_id="me", metadata=write_subscription(members["me"])),
                Member(member_id="odd", metadata=b"\x00"),
            ],
        ),
    )
    made = script.take(MakeAssignment)
    assert made.members.keys() == members.keys()
    assert made.members["odd"].topics == ()
    assert "odd" in caplog.text


def test_each_rebalance_is_logged_once_with_what_it_brought(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = Script()
    script.to_stable(0, 1, 2)
    script.beat(27)
    script.now += 0.5
    script.poll()
    script.now += 0.25
    script.called_back(CallRevoked)
    script.join_answer(generation=2)
    script.sync_answer(parts(2, 3))
    script.poll()
    script.called_back(CallAssigned)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert len(lines) == 2
    assert lines[1] == (
        "[g] rebalanced in 0.250 s (0.500 s after it was due): generation 2, range, gained t 3, "
        "lost t 0-1, now 2 partitions. Reason: the group rebalances"
    )


def test_log_names_lost_and_gained_partitions_of_lost_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = Script()
    script.to_stable(0, 1)
    script.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    script.poll()
    script.called_back(CallLost)
    script.join_answer(generation=5)
    script.sync_answer(parts(0))
    script.poll()
    script.called_back(CallAssigned)
    assert "gained t 0, lost t 0-1, now 1 partition" in caplog.messages[-1]


def test_log_names_the_wait_for_poll_after_loss_in_the_callback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = Script()
    script.to_stable(0)
    script.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    script.now += 0.5
    script.poll()
    script.called_back(CallRevoked)
    script.join_answer(generation=2)
    script.sync_answer(parts(0))
    script.poll()
    script.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    script.called_back(CallAssigned)
    script.poll()
    script.called_back(CallLost)
    script.join_answer(generation=3)
    script.sync_answer(parts(0))
    script.poll()
    script.called_back(CallAssigned)
    assert "(0.500 s after it was due): generation 3" in caplog.messages[-1]


def test_lost_membership_calls_lost_at_next_poll_and_rejoins() -> None:
    script = Script()
    script.to_stable()
    script.beat(25)
    assert script.at(MemberState.JOIN_PENDING)
    assert (script.machine.generation, script.machine.member_id) == (-1, "")
    assert script.machine.next_deadline() is None, "no heartbeats without a membership"
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert script.machine.owned == frozenset()
    assert script.take(JoinGroup).member_id == ""


def test_an_old_generation_keeps_its_member_id() -> None:
    script = Script()
    script.to_stable()
    script.beat(22)
    script.poll()
    script.called_back(CallLost)
    assert script.take(JoinGroup).member_id == "me"


def test_membership_lost_in_revoked_callback_rejoins_after_it() -> None:
    script = Script()
    script.to_stable()
    script.beat(27)
    script.poll()
    script.beat(25)
    assert script.at(MemberState.REVOKING)
    script.called_back(CallRevoked)
    assert script.take(JoinGroup).member_id == ""


def test_membership_lost_in_assigned_callback_is_lost_after_it() -> None:
    script = Script()
    script.to_reconciling()
    script.poll()
    script.beat(25)
    script.called_back(CallAssigned)
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)


def test_membership_lost_while_assignor_runs_drops_its_result() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    made = script.take(MakeAssignment)
    script.beat(25)
    assert made.token in script.cancelled
    assert script.at(MemberState.JOINING)
    script.commands.append(made)
    script.assign({"me": parts(0)})
    assert script.at(MemberState.JOINING)
    assert not script.has(SyncGroup)


def test_a_leader_that_becomes_a_follower_stops_watching() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.assign({"me": parts(0)})
    script.sync_answer(parts(0))
    script.poll()
    script.called_back(CallAssigned)
    script.beat(27)
    script.poll()
    script.called_back(CallRevoked)
    script.take(WatchTopics)
    script.join_answer(generation=2, leader="other")
    assert script.take(WatchTopics).topics == frozenset()
    assert not script.machine.is_leader
