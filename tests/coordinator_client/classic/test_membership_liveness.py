"""Deadlines of the state machine: heartbeats, the session, the poll interval."""

from __future__ import annotations

import math

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    DropCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    StopDelivery,
)
from kohort.coordinator_client.machine._events import CoordinatorFound
from kohort.errors import ErrorCode, KafkaConnectionError
from tests.coordinator_client.scripts import Script, parts


def test_one_heartbeat_an_interval_and_one_in_flight() -> None:
    script = Script()
    script.to_stable()
    start = script.now
    for count in range(1, 6):
        script.beat()
        assert script.now == start + 3 * count
    script.wait(10)
    assert sum(isinstance(command, Heartbeat) for command in script.commands) == 1


def test_lost_heartbeat_leaves_time_for_another_in_the_session() -> None:
    script = Script(session_timeout=6.0, heartbeat_interval=2.0)
    script.to_stable()
    script.wait(2)
    assert script.take(Heartbeat).timeout == 4.0


def test_silent_session_drops_the_coordinator_not_the_partitions() -> None:
    script = Script()
    script.to_stable()
    script.wait(3)
    silent = script.take(Heartbeat)
    script.wait(45)
    assert silent.token in script.cancelled
    assert "45.0 s" in script.take(DropCoordinator).reason
    assert script.at(MemberState.STABLE)
    assert script.machine.owned == parts(0, 1)
    assert script.take(Heartbeat).generation == 1, (
        "the new coordinator gets the heartbeat immediately"
    )


def test_session_counts_from_sending_the_last_answered_heartbeat() -> None:
    script = Script(session_timeout=10.0)
    script.to_stable()
    script.wait(3)
    sent = script.now
    script.wait(2)
    script.heartbeat_answer()
    assert script.machine.heartbeats.session_end == sent + 10


def test_coordinator_found_late_gets_a_whole_session_to_respond() -> None:
    script = Script(session_timeout=10.0)
    script.to_stable()
    script.wait(3)
    script.wait(6.5)  # the heartbeat waits until the coordinator is known
    script.feed(CoordinatorFound())
    script.wait(5)
    script.heartbeat_answer()
    assert script.machine.heartbeats.session_end == script.now - 5 + 10
    script.wait(1)
    assert not script.has(DropCoordinator)


def test_heartbeats_that_fail_are_repeated_with_growing_pauses() -> None:
    script = Script()
    script.to_stable()
    script.wait(3)
    times = []
    for _ in range(6):
        script.refuse(Heartbeat, KafkaConnectionError("gone"))
        before = script.now
        while not script.has(Heartbeat):
            script.wait(0.01)
        times.append(script.now - before)
    assert times[:4] == sorted(times[:4])
    assert 0.07 <= times[0] <= 0.13
    assert times[-1] <= 1.3


def test_coordinator_that_is_silent_while_joining_is_dropped() -> None:
    script = Script(cooperative=True)
    script.to_stable()
    script.beat(27)
    script.poll()
    join = script.take(JoinGroup)
    script.wait(60)
    assert script.has(DropCoordinator)
    assert join.token in script.cancelled
    assert script.take(JoinGroup).member_id == "me"


def test_a_caller_that_does_not_poll_makes_the_member_leave(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(max_poll_interval=10.0)
    script.to_stable()
    script.last_poll = script.now
    for _ in range(3):
        script.wait(3, polled=False)
        script.heartbeat_answer()
    assert script.at(MemberState.STABLE)
    script.wait(1.5, polled=False)
    assert "poll() was not called" in script.take(LeaveGroup).reason
    assert "max_poll_interval_ms (10000)" in caplog.text
    assert script.at(MemberState.JOIN_PENDING)
    assert script.machine.owned == parts(0, 1), "lost only at the next poll"
    assert script.machine.next_deadline() is None
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert script.take(JoinGroup).member_id == ""


def test_what_is_lost_is_withheld_before_the_caller_is_back() -> None:
    script = Script()
    script.to_stable()
    script.wait(301, polled=False)
    assert script.take(StopDelivery).partitions == parts(0, 1)
    assert not script.has(CallLost)
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert not script.has(StopDelivery)


def test_a_static_member_that_does_not_poll_keeps_its_place() -> None:
    script = Script(max_poll_interval=10.0, static=True)
    script.to_stable()
    script.wait(11, polled=False)
    assert not script.has(LeaveGroup)
    assert script.at(MemberState.JOIN_PENDING)


def test_a_caller_inside_poll_is_never_late() -> None:
    script = Script(max_poll_interval=10.0)
    script.to_stable()
    for _ in range(20):
        script.beat()
    assert script.at(MemberState.STABLE)


@pytest.mark.parametrize("state", ["joining", "syncing", "reconciling"])
def test_caller_that_stops_polling_does_not_delay_a_rebalance(state: str) -> None:
    script = Script(max_poll_interval=10.0)
    getattr(script, f"to_{state}")()
    script.machine.member.member_id = "me"
    script.wait(11, polled=False)
    assert script.take(LeaveGroup).member_id == "me"
    assert script.at(MemberState.JOIN_PENDING)
    assert script.has(AwaitPoll)
    assert not script.has(CallAssigned)
    script.poll()
    assert script.has(JoinGroup)


def test_callback_slower_than_poll_interval_ends_the_membership() -> None:
    script = Script(max_poll_interval=10.0)
    script.to_stable()
    script.beat(27)
    script.poll()
    assert script.at(MemberState.REVOKING)
    script.wait(11, polled=False)
    assert script.has(LeaveGroup)
    assert script.called_back(CallRevoked) == parts(0, 1)
    assert script.take(JoinGroup).member_id == ""


def test_answered_heartbeat_confirms_membership_for_a_session() -> None:
    script = Script(session_timeout=10.0)
    assert script.machine.confirmed_until == math.inf, "without a membership nothing is owned"
    script.to_stable()
    joined = script.now
    assert script.machine.confirmed_until == joined + 10
    script.wait(3)
    sent = script.now
    script.wait(2)
    assert script.machine.confirmed_until == joined + 10
    script.heartbeat_answer()
    assert script.machine.confirmed_until == sent + 10


@pytest.mark.parametrize(
    ("code", "sure"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, False),
    ],
)
def test_unavailable_coordinator_does_not_confirm_a_membership(code: int, sure: bool) -> None:
    script = Script(session_timeout=10.0)
    script.to_stable()
    before = script.machine.confirmed_until
    script.wait(3)
    script.heartbeat_answer(code)
    assert (script.machine.confirmed_until > before) is sure


def test_cooperative_member_heartbeats_faster_after_a_rebalance() -> None:
    script = Script(cooperative=True, heartbeat_interval=3.0)
    script.to_stable()
    pauses = []
    for _ in range(9):
        before = script.now
        deadline = script.machine.next_deadline()
        assert deadline is not None
        script.wait(deadline - before)
        pauses.append(round(script.now - before, 6))
        script.heartbeat_answer()
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3, 3, 3]


def test_a_broker_that_is_never_the_coordinator_is_not_flooded() -> None:
    script = Script()
    script.to_stable()
    sent = 0
    end = script.now + 10
    while script.now < end:
        if script.has(Heartbeat):
            sent += 1
            script.heartbeat_answer(16)
            script.feed(CoordinatorFound())
        else:
            script.wait(0.05)
    assert sent <= 20
