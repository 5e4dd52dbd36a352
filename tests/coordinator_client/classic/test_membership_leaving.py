"""Leaving the group from every state of the state machine."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Subscription
from kohort.coordinator_client.classic._leaving import MEMBER_ID_WAIT_SECONDS
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    CallLost,
    CallRevoked,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
)
from kohort.errors import ErrorCode, KafkaConnectionError, MessageDecodeError
from kohort.protocol.messages import LeaveGroupResponse
from tests.coordinator_client.scripts import Script, parts


def _join_pending(script: Script) -> None:
    script.to_stable()
    script.beat(27)


def _revoking(script: Script) -> None:
    _join_pending(script)
    script.poll()


def _assigning(script: Script) -> None:
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})


def _adopting(script: Script) -> None:
    script.to_reconciling()
    script.poll()


def _failed(script: Script) -> None:
    script.to_joining()
    script.join_answer(30)


STATES: dict[str, Callable[[Script], None]] = {
    "first join pending": Script.subscribe,
    "join pending": _join_pending,
    "revoking": _revoking,
    "joining": Script.to_joining,
    "assigning": _assigning,
    "syncing": Script.to_syncing,
    "reconciling": Script.to_reconciling,
    "adopting": _adopting,
    "stable": Script.to_stable,
    "failed": _failed,
}


@pytest.mark.parametrize("state", STATES)
def test_leaving_ends_from_every_state_and_gives_everything_up(state: str) -> None:
    script = Script()
    STATES[state](script)
    known = script.machine.member_id
    script.leave()
    if script.has(CallAssigned):
        script.called_back(CallAssigned)
    while script.has(CallRevoked):
        script.called_back(CallRevoked)
    if script.has(JoinGroup):
        script.join_answer(79, member_id=(known := "given"))
    if known:
        leave = script.take(LeaveGroup)
        assert leave.member_id == known
        script.answer(leave, LeaveGroupResponse())
    assert script.at(MemberState.UNSUBSCRIBED)
    machine = script.machine
    assert (machine.owned, machine.member_id, machine.generation) == (frozenset(), "", -1)
    assert not machine.outstanding
    assert machine.next_deadline() is None


@pytest.mark.parametrize("state", STATES)
def test_leaving_and_subscribing_again_joins_anew(state: str) -> None:
    script = Script()
    STATES[state](script)
    script.leave()
    script.subscribe("u")
    if script.has(CallAssigned):
        script.called_back(CallAssigned)
    while script.has(CallRevoked):
        script.called_back(CallRevoked)
    if script.has(JoinGroup):
        script.join_answer(79, member_id="given")
    if script.has(LeaveGroup):
        script.leave_answer()
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    join = script.take(JoinGroup)
    assert (join.topics, join.member_id) == (frozenset({"u"}), "")


def test_revoked_is_called_on_leaving_and_heartbeats_go_on_in_it() -> None:
    script = Script()
    script.to_stable()
    script.leave()
    script.beat()
    assert script.machine.owned == parts(0, 1), "the callback may commit"
    assert script.called_back(CallRevoked) == parts(0, 1)
    script.leave_answer()
    script.wait(10)
    assert not script.has(Heartbeat)


def test_lost_is_called_on_leaving_when_the_generation_is_gone() -> None:
    script = Script()
    script.to_stable()
    script.beat(25)
    script.leave()
    assert script.called_back(CallLost) == parts(0, 1)
    assert script.at(MemberState.UNSUBSCRIBED)


def test_a_static_member_goes_silently() -> None:
    script = Script(static=True)
    script.to_stable()
    script.leave(leave_group=False)
    script.called_back(CallRevoked)
    assert not script.has(LeaveGroup)
    assert script.at(MemberState.UNSUBSCRIBED)


def test_a_silent_coordinator_does_not_hold_up_the_leaving() -> None:
    script = Script()
    script.to_stable()
    script.leave(timeout=2.0)
    script.called_back(CallRevoked)
    sent = script.take(LeaveGroup)
    script.wait(2.1)
    assert sent.token in script.cancelled
    assert script.at(MemberState.UNSUBSCRIBED)


def test_leaving_is_tried_again_until_its_time_is_over() -> None:
    script = Script()
    script.to_stable()
    script.leave(timeout=2.0)
    script.called_back(CallRevoked)
    tries = 0
    end = script.now + 3
    while script.now < end:
        if script.has(LeaveGroup):
            script.refuse(LeaveGroup, KafkaConnectionError("gone"))
            tries += 1
        script.wait(0.05)
    assert 3 <= tries <= 10
    assert script.at(MemberState.UNSUBSCRIBED)


def test_callbacks_that_took_all_the_time_still_allow_leaving() -> None:
    script = Script()
    script.to_stable()
    script.leave(timeout=1.0)
    script.wait(4)
    assert script.at(MemberState.LEAVING)
    script.called_back(CallRevoked)
    script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)


def test_leaving_twice_is_leaving_once() -> None:
    script = Script()
    script.to_stable()
    script.leave()
    script.leave()
    script.called_back(CallRevoked)
    script.leave_answer()
    script.leave()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert not script.has(CallRevoked)


def test_a_parked_join_is_given_up_when_leaving() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(79, member_id="given")
    parked = script.take(JoinGroup)
    script.leave()
    assert parked.token in script.cancelled
    assert script.take(LeaveGroup).member_id == "given"


def test_leaving_waits_for_requested_member_id_and_returns_it() -> None:
    script = Script()
    script.to_joining()
    script.leave()
    assert script.at(MemberState.LEAVING)
    script.join_answer(79, member_id="given")
    assert script.take(LeaveGroup).member_id == "given"


def test_leaving_is_not_delayed_by_a_missing_member_id() -> None:
    script = Script()
    script.to_joining()
    asked = script.take(JoinGroup)
    script.leave()
    script.wait(MEMBER_ID_WAIT_SECONDS)
    assert script.at(MemberState.UNSUBSCRIBED)
    assert asked.token in script.cancelled


@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), MessageDecodeError("garbage")])
def test_a_member_id_that_never_comes_needs_no_leaving(error: Exception) -> None:
    script = Script()
    script.to_joining()
    script.leave()
    script.refuse(JoinGroup, error)
    assert script.at(MemberState.UNSUBSCRIBED)
    assert not script.has(LeaveGroup)


def test_lost_member_leaving_while_joining_returns_its_new_id() -> None:
    script = Script(cooperative=True)
    script.to_stable()
    script.beat(25)
    script.poll()
    script.called_back(CallLost)
    script.leave()
    script.join_answer(79, member_id="new")
    assert script.take(LeaveGroup).member_id == "new"


@pytest.mark.parametrize(
    ("joins", "leave_group", "code", "words"),
    [
        (True, True, 0, "left the group"),
        (True, False, None, "stays in the group for a session"),
        (True, True, ErrorCode.GROUP_AUTHORIZATION_FAILED, "stays in the group for a session"),
        (False, True, None, "stopped without a membership"),
    ],
)
def test_log_names_what_became_of_the_membership(
    joins: bool,
    leave_group: bool,
    code: int | None,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = Script()
    if joins:
        script.to_stable()
    else:
        script.subscribe()
    script.leave(leave_group=leave_group)
    if joins:
        script.called_back(CallRevoked)
    if code is not None:
        script.leave_answer(code)
    assert script.at(MemberState.UNSUBSCRIBED)
    assert words in caplog.messages[-1]
