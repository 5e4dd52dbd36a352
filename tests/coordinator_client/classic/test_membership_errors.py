"""The state machine with every error code that the coordinator may return."""

from __future__ import annotations

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.assignors import Subscription
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    CallLost,
    Command,
    DropCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    ReportFailure,
    SyncGroup,
)
from kohort.coordinator_client.machine._error_code_actions import (
    ACTIONS,
    CoordinatorAction,
    action_for,
)
from kohort.coordinator_client.machine._events import CommitRejected, Tick
from kohort.errors import (
    AssignorError,
    ErrorCode,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaConnectionError,
    KafkaError,
    MessageDecodeError,
    UnsupportedVersionError,
    error_class,
    error_name,
)
from kohort.protocol import ApiKey
from kohort.protocol.messages import MetadataResponse, SyncGroupResponse
from tests.coordinator_client.scripts import Script, parts

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]
REJOINING = {MemberState.JOIN_PENDING, MemberState.JOINING}


def _outcome(script: Script) -> set[type]:
    return {type(command) for command in script.commands}


def _reported(script: Script) -> Exception:
    """Run the events before the failure and return the error that the caller gets."""
    if script.has(CallLost):
        script.called_back(CallLost)
    return script.take(ReportFailure).error


@pytest.mark.parametrize("api", ACTIONS, ids=lambda api: api.name)
def test_unlisted_error_code_is_retried_only_if_retriable(api: ApiKey) -> None:
    for code in {*CODES, 9999} - ACTIONS[api].keys():
        expected = (
            CoordinatorAction.RETRY if error_class(code).retriable else CoordinatorAction.FAIL
        )
        assert action_for(api, code) is expected


@pytest.mark.parametrize("code", [*CODES, 9999])
def test_join_group(code: int) -> None:
    script = Script()
    script.to_joining()
    script.join_answer(code, member_id="given" if code == 79 else "")
    action = action_for(ApiKey.JOIN_GROUP, code)
    if action in (CoordinatorAction.FAIL, CoordinatorAction.FENCED):
        error = _reported(script)
        assert isinstance(error, error_class(code))
        assert error.code == code
        assert script.at(MemberState.FAILED)
        return
    assert script.at(MemberState.JOINING)
    assert script.has(DropCoordinator) == (action is CoordinatorAction.REDISCOVER)
    script.wait(1)
    assert script.take(JoinGroup).member_id == ("given" if code == 79 else "")


@pytest.mark.parametrize("code", [*CODES, 9999])
def test_sync_group(code: int) -> None:
    script = Script()
    script.to_syncing()
    script.sync_answer(error_code=code)
    action = action_for(ApiKey.SYNC_GROUP, code)
    if action in (CoordinatorAction.FAIL, CoordinatorAction.FENCED):
        error = _reported(script)
        assert isinstance(error, error_class(code))
        assert script.at(MemberState.FAILED)
        return
    assert script.at(MemberState.JOINING)
    assert script.has(DropCoordinator) == (action is CoordinatorAction.REDISCOVER)
    script.wait(1)
    expected = "" if action is CoordinatorAction.LOSE_MEMBER else "me"
    assert script.take(JoinGroup).member_id == expected


@pytest.mark.parametrize("code", [*CODES, 9999])
def test_heartbeat(code: int) -> None:
    script = Script()
    script.to_stable()
    script.beat(code)
    match action_for(ApiKey.HEARTBEAT, code):
        case CoordinatorAction.RETRY | CoordinatorAction.REDISCOVER as action:
            assert script.at(MemberState.STABLE)
            assert script.has(DropCoordinator) == (action is CoordinatorAction.REDISCOVER)
            script.wait(1)
            script.heartbeat_answer()
            assert script.at(MemberState.STABLE)
        case CoordinatorAction.REJOIN:
            assert script.at(MemberState.JOIN_PENDING)
            assert script.machine.generation == 1
        case CoordinatorAction.LOSE_GENERATION | CoordinatorAction.LOSE_MEMBER as action:
            assert script.at(MemberState.JOIN_PENDING)
            script.poll()
            assert script.called_back(CallLost) == parts(0, 1)
            expected = "" if action is CoordinatorAction.LOSE_MEMBER else "me"
            assert script.take(JoinGroup).member_id == expected
        case _:
            assert script.at(MemberState.JOIN_PENDING)
            assert not script.has(ReportFailure), "the partitions are reported as lost first"
            script.poll()
            error = _reported(script)
            assert isinstance(error, error_class(code))
            assert script.at(MemberState.FAILED)
            assert script.machine.owned == frozenset()


@pytest.mark.parametrize("code", [*CODES, 9999])
def test_leave_group(code: int) -> None:
    script = Script()
    script.to_stable()
    script.machine.member.owned = frozenset()
    script.leave()
    script.leave_answer(code)
    if action_for(ApiKey.LEAVE_GROUP, code) in (
        CoordinatorAction.RETRY,
        CoordinatorAction.REDISCOVER,
    ):
        assert script.at(MemberState.LEAVING)
        script.wait(1)
        script.leave_answer()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert script.machine.next_deadline() is None


@pytest.mark.parametrize("code", [*CODES, 9999])
def test_what_a_refused_commit_tells_the_machine(code: int) -> None:
    script = Script()
    script.to_stable()
    script.feed(CommitRejected(code, 1, "me"))
    match action_for(ApiKey.OFFSET_COMMIT, code):
        case CoordinatorAction.REJOIN:
            assert script.at(MemberState.JOIN_PENDING)
            assert script.machine.generation == 1
        case CoordinatorAction.LOSE_GENERATION | CoordinatorAction.LOSE_MEMBER:
            assert script.at(MemberState.JOIN_PENDING)
            assert script.machine.generation == -1
        case CoordinatorAction.FENCED:
            script.poll()
            assert _reported(script)
            assert script.at(MemberState.FAILED)
        case _:
            assert script.at(MemberState.STABLE)


def test_a_commit_of_an_earlier_generation_tells_nothing() -> None:
    script = Script()
    script.to_stable()
    script.feed(CommitRejected(25, 0, "me"))
    script.feed(CommitRejected(25, 1, "another"))
    assert script.at(MemberState.STABLE)


def test_fenced_member_rejoins_only_after_a_new_subscription() -> None:
    script = Script(static=True)
    script.to_stable()
    script.beat(82)
    script.poll()
    assert script.called_back(CallLost) == parts(0, 1)
    assert "group_instance_id" in str(script.take(ReportFailure).error)
    script.wait(60)
    assert script.at(MemberState.FAILED)
    assert script.machine.next_deadline() is None
    script.subscribe()
    assert script.at(MemberState.JOIN_PENDING)


def test_member_rejoins_at_the_next_poll_after_an_error() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(30)
    assert isinstance(script.take(ReportFailure).error, GroupAuthorizationFailedError)
    script.wait(30, polled=False)
    assert script.at(MemberState.FAILED)
    script.last_poll = script.now
    script.wait(1)
    assert script.at(MemberState.JOIN_PENDING)


def test_broker_that_forgets_members_at_once_is_not_flooded() -> None:
    script = Script()
    script.to_joining()
    sent = 0
    end = script.now + 10
    while script.now < end:
        if script.has(JoinGroup):
            sent += 1
            script.join_answer(25, member_id="")
        else:
            script.wait(0.05)
    assert sent <= 20


def test_broker_that_always_requires_a_member_id_is_not_flooded() -> None:
    script = Script()
    script.to_joining()
    sent = 0
    end = script.now + 10
    while script.now < end:
        if script.has(JoinGroup):
            sent += 1
            script.join_answer(79, member_id=f"m{sent}")
        else:
            script.wait(0.05)
    assert sent <= 20


def test_required_member_id_that_is_not_given_is_requested_later() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(79, member_id="")
    assert not script.has(JoinGroup)
    script.wait(1)
    assert script.has(JoinGroup)


@pytest.mark.parametrize("kind", [JoinGroup, SyncGroup, Heartbeat, LeaveGroup])
@pytest.mark.parametrize("error", [KafkaConnectionError("gone"), OSError("gone")])
def test_what_the_network_spoils_is_sent_again(kind: type[Command], error: Exception) -> None:
    script = Script()
    if kind is JoinGroup:
        script.to_joining()
    elif kind is SyncGroup:
        script.to_syncing()
    else:
        script.to_stable()
        script.machine.member.owned = frozenset()
        if kind is LeaveGroup:
            script.leave()
        else:
            script.wait(3)
    script.refuse(kind, error)
    script.wait(1.5)
    assert script.has(JoinGroup if kind is SyncGroup else kind)


@pytest.mark.parametrize(
    "error", [UnsupportedVersionError("too old"), MessageDecodeError("garbage"), ValueError("odd")]
)
def test_what_no_repetition_mends_is_reported(error: Exception) -> None:
    script = Script()
    script.to_joining()
    script.refuse(JoinGroup, error)
    reported = script.take(ReportFailure).error
    assert isinstance(reported, KafkaError)
    assert str(error) in str(reported)
    assert script.at(MemberState.FAILED)


def test_undecodable_heartbeat_response_keeps_the_membership() -> None:
    script = Script()
    script.to_stable()
    script.wait(3)
    script.refuse(Heartbeat, MessageDecodeError("garbage"))
    script.wait(1)
    script.heartbeat_answer()
    assert script.at(MemberState.STABLE)


def test_assignor_error_is_reported_and_the_member_leaves() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.refuse(MakeAssignment, AssignorError("no"))
    assert script.take(LeaveGroup).member_id == "me"
    assert isinstance(script.take(ReportFailure).error, AssignorError)
    assert script.at(MemberState.FAILED)


def test_static_member_stays_in_the_group_after_assignor_error() -> None:
    script = Script(static=True)
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.refuse(MakeAssignment, AssignorError("no"))
    assert not script.has(LeaveGroup)


def test_leader_rejoins_when_topics_cannot_be_looked_up() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    script.refuse(MakeAssignment, KafkaConnectionError("gone"))
    assert script.at(MemberState.JOINING)
    script.wait(1)
    assert script.take(JoinGroup).member_id == "me"


def test_a_group_of_another_kind_is_left_with_an_error() -> None:
    script = Script()
    script.to_joining()
    script.join_answer(protocol="sticky")
    assert isinstance(script.take(ReportFailure).error, InconsistentGroupProtocolError)
    assert script.has(LeaveGroup)


def test_a_sync_answer_of_another_protocol_is_an_error() -> None:
    script = Script()
    script.to_syncing()
    script.sync_answer(parts(0), protocol_type="connect", protocol_name="range")
    assert isinstance(script.take(ReportFailure).error, InconsistentGroupProtocolError)


def test_unreadable_assignment_is_reported_and_the_member_leaves() -> None:
    script = Script()
    script.to_syncing()
    script.answer(script.take(SyncGroup), SyncGroupResponse(assignment=b"\x00"))
    assert isinstance(script.take(ReportFailure).error, MessageDecodeError)
    assert script.has(LeaveGroup)


def test_response_of_another_api_is_reported_without_a_crash() -> None:
    script = Script()
    script.to_joining()
    script.answer(script.take(JoinGroup), MetadataResponse())
    assert isinstance(script.take(ReportFailure).error, KafkaError)


def test_an_answer_after_the_membership_moved_on_is_ignored() -> None:
    script = Script()
    script.to_joining()
    join = script.take(JoinGroup)
    script.leave()
    script.wait(1)
    assert script.at(MemberState.UNSUBSCRIBED)
    script.commands.append(join)
    script.join_answer()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert not script.has(SyncGroup)


def test_a_tick_too_many_does_nothing() -> None:
    script = Script()
    for _ in range(3):
        assert script.feed(Tick(0.0)) == []
    script.to_stable()
    before = len(script.commands)
    for _ in range(3):
        script.feed(Tick(script.last_poll))
    assert len(script.commands) == before
    assert not script.has(CallAssigned)


@pytest.mark.parametrize("code", [25, 22, 79])
def test_obstruction_names_the_latest_error_of_join_group(code: int) -> None:
    script = Script()
    script.to_joining()
    script.join_answer(14)
    script.wait(1)
    script.join_answer(code, member_id="")
    obstruction = script.machine.statistics().join_obstruction
    assert obstruction == f"JoinGroup returned {error_name(code)}"
    script.wait(2)
    script.join_answer()
    assert script.machine.statistics().join_obstruction is None
