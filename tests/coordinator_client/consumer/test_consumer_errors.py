"""The reactions of a consumer group member to the error codes of its heartbeats."""

from __future__ import annotations

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.consumer._heartbeats import MIN_INTERVAL
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallLost,
    CallRevoked,
    ConsumerHeartbeat,
    DropCoordinator,
    ReportFailure,
    StopDelivery,
)
from kohort.coordinator_client.machine._events import CoordinatorFound, EpochRejected
from kohort.coordinator_client.machine._refusal_series import SERVER_ERRORS
from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    FencedInstanceIdError,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    TopicAuthorizationFailedError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kohort.transport import Backoff
from tests.coordinator_client.consumer_scripts import INTERVAL, ConsumerScript, by_id, parts

JOINING = MemberState.JOINING
FAILS = [
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_ASSIGNOR,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REGULAR_EXPRESSION,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.FENCED_INSTANCE_ID,
]
LOSES = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
]


def reported(script: ConsumerScript) -> BrokerResponseError:
    error = script.take(ReportFailure).error
    assert isinstance(error, BrokerResponseError)
    return error


@pytest.mark.parametrize("code", FAILS)
def test_join_fails_with_an_error_when_a_retry_is_useless(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(error=code, message="because")
    error = reported(script)
    assert error.code == code
    assert script.at(MemberState.FAILED)
    assert not script.has(ConsumerHeartbeat)


def test_error_has_the_message_of_the_broker() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(error=ErrorCode.GROUP_ID_NOT_FOUND, message="Cannot upgrade\nthe group")
    text = str(reported(script))
    assert "GROUP_ID_NOT_FOUND" in text
    assert "Cannot upgrade\\nthe group" in text
    assert script.at(MemberState.FAILED)


@pytest.mark.parametrize("code", FAILS)
def test_member_loses_its_partitions_before_the_error(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.answer(error=code)
    assert script.take(StopDelivery).partitions == parts(0)
    assert script.at(MemberState.JOIN_PENDING)
    assert not script.has(ReportFailure)
    script.poll()
    script.called_back(CallLost)
    assert reported(script).code == code
    assert script.at(MemberState.FAILED)


@pytest.mark.parametrize("code", FAILS)
def test_failed_member_joins_at_a_later_poll_unless_fenced(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(error=code)
    script.commands.clear()
    script.pass_time(30.0)
    is_fenced = code == ErrorCode.FENCED_INSTANCE_ID
    assert script.machine.is_fenced is is_fenced
    assert script.at(MemberState.FAILED if is_fenced else MemberState.JOIN_PENDING)
    if is_fenced:
        script.subscribe()
    script.poll()
    assert script.take(ConsumerHeartbeat).epoch == 0


@pytest.mark.parametrize("code", LOSES)
def test_membership_ends_and_the_same_member_joins(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_stable()
    member_id, losses = script.machine.member_id, script.machine.losses
    script.pass_time(INTERVAL)
    script.answer(error=code)
    assert script.at(JOINING), "without partitions there is no callback to wait for"
    sent = script.answer(7, [])
    assert (sent.epoch, sent.member_id, sent.is_full) == (0, member_id, True)
    assert script.machine.losses == losses + 1
    assert not script.has(ReportFailure)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_refused_join_leaves_and_takes_a_new_member_id(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_joining()
    member_id = script.machine.member_id
    script.answer(error=code)
    leave = script.take(ConsumerHeartbeat)
    assert (leave.epoch, leave.member_id) == (-1, member_id)
    join = script.take(ConsumerHeartbeat)
    assert (join.epoch, join.is_full) == (0, True)
    assert join.member_id == script.machine.member_id != member_id


def test_repeated_losses_pause_before_the_join() -> None:
    script = ConsumerScript()
    script.to_stable()
    script.pass_time(INTERVAL)
    for _ in range(3):
        script.answer(error=ErrorCode.UNKNOWN_MEMBER_ID)
        script.pass_time(3.0)
        script.answer(9)
        script.pass_time(0.1)
    assert script.at(MemberState.RECONCILING) or script.at(JOINING)


@pytest.mark.parametrize("code", [14, 15, 16, 7])
@pytest.mark.parametrize("joining", [True, False])
def test_retriable_error_repeats_all_fields(code: int, joining: bool) -> None:
    script = ConsumerScript()
    if joining:
        script.to_joining()
    else:
        script.to_stable(0)
        script.pass_time(INTERVAL)
    state = script.machine.state
    script.answer(error=code)
    assert script.has(DropCoordinator) is (code != 14)
    assert script.has(ConsumerHeartbeat) is (code != 14), "a new coordinator gets it at once"
    script.pass_time(0.2)
    sent = script.take(ConsumerHeartbeat)
    assert (sent.is_full, sent.topics) == (True, frozenset({"t"}))
    assert sent.owned == (frozenset() if joining else by_id(0))
    assert script.machine.state is state


def test_disconnect_repeats_all_fields_at_once() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.fail(ConsumerHeartbeat, KafkaConnectionError("gone"))
    sent = script.answer(2, by_id(0))
    assert (sent.is_full, sent.owned) == (True, by_id(0))
    assert script.at(MemberState.STABLE)
    assert not script.has(AwaitPoll)


def test_lost_assignment_is_repaired_by_the_full_request() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.fail(ConsumerHeartbeat, KafkaConnectionError("gone"))
    sent = script.answer(2, by_id(0))
    assert sent.owned == by_id(0, 1)
    assert script.take(StopDelivery).partitions == parts(1)


def test_unsupported_request_is_reported() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.fail(ConsumerHeartbeat, UnsupportedVersionError("the broker is too old"))
    assert isinstance(script.take(ReportFailure).error, UnsupportedVersionError)
    assert script.at(MemberState.FAILED)


def test_missing_topic_right_is_reported_once_and_keeps_member() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.subscribe("t", "secret")
    for _ in range(3):
        script.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        script.pass_time(INTERVAL)
    assert isinstance(reported(script), TopicAuthorizationFailedError)
    assert not script.has(ReportFailure)
    assert script.at(MemberState.STABLE)
    assert script.machine.owned == parts(0)
    assert script.answer(3).topics == frozenset({"t", "secret"})
    script.subscribe("t", "other")
    script.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert script.has(ReportFailure), "a new series is reported again"


@pytest.mark.parametrize("leaves", [True, False])
def test_missing_topic_right_is_reported_for_each_subscription(leaves: bool) -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert script.has(ReportFailure)
    script.commands.clear()
    if leaves:
        script.leave()
        script.take(ConsumerHeartbeat)
        script.pass_time(11.0)
        script.commands.clear()
    script.subscribe("u")
    if leaves:
        script.poll()
    assert script.answer(error=29).topics == frozenset({"u"})
    assert script.has(ReportFailure)


def test_subscription_is_sent_at_once_after_a_refused_one() -> None:
    script = ConsumerScript()
    script.to_joining("t")
    script.subscribe("u")
    script.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert not script.has(ReportFailure), "the refused subscription was replaced"
    assert script.answer(error=29).topics == frozenset({"u"})
    assert script.has(ReportFailure)


def test_missing_right_on_a_topic_is_reported_after_the_session() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.subscribe("t", "secret")
    for _ in range(20):
        script.answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        script.pass_time(INTERVAL)
    assert isinstance(reported(script), TopicAuthorizationFailedError)
    assert isinstance(reported(script), TopicAuthorizationFailedError)
    assert not script.has(ReportFailure)


def test_held_instance_id_is_retried_then_fenced() -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    attempts = 0
    while script.at(JOINING):
        script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
        attempts += 1
        script.pass_time(1.0)
    assert 40 < attempts < 60, "one each second at most, for a session timeout"
    error = reported(script)
    assert isinstance(error, UnreleasedInstanceIdError)
    assert "group_instance_id" in str(error)
    assert script.machine.is_fenced


@pytest.mark.parametrize("fences", [True, False])
def test_held_instance_id_is_retried_after_each_subscribe(fences: bool) -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    while script.at(JOINING):
        script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
        if not fences:
            script.leave()
            script.answer()
            break
        script.pass_time(1.0)
    script.pass_time(100.0)
    script.subscribe()
    script.poll()
    script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert script.at(JOINING)
    assert not script.machine.is_fenced


def _refuse_held_instance(script: ConsumerScript) -> None:
    """Refuse the join, and the release of the instance id that may follow, for another holder."""
    assert script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID).epoch == 0
    if script.has(ConsumerHeartbeat):
        assert script.answer(error=ErrorCode.FENCED_INSTANCE_ID).epoch == -2


@pytest.mark.parametrize("interruption", ["disconnect", "code", "search"])
def test_held_instance_id_is_retried_after_an_outage(interruption: str) -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    script.pass_time(1.0)
    match interruption:
        case "disconnect":
            script.fail(ConsumerHeartbeat, KafkaConnectionError("gone"))
        case "code":
            script.answer(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    script.pass_time(60.0)
    if interruption == "search":
        script.handle(CoordinatorFound())
    _refuse_held_instance(script)
    assert script.at(JOINING), "the new coordinator waits a whole session for the other member"
    for _ in range(44):
        script.pass_time(1.0)
        _refuse_held_instance(script)
    assert script.at(JOINING)
    script.pass_time(1.0)
    _refuse_held_instance(script)
    assert script.machine.is_fenced


def _fail_in_the_broker(script: ConsumerScript) -> int:
    """Fail heartbeats with UNKNOWN_SERVER_ERROR until the member fails. Return their number."""
    attempts = 0
    while script.has(ConsumerHeartbeat) and not script.at(MemberState.FAILED):
        sent = script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        assert sent.is_full or not attempts
        attempts += 1
        if not script.machine.losses:
            script.pass_time(1.0)
    return attempts


def test_join_is_retried_when_the_broker_fails() -> None:
    script = ConsumerScript()
    script.to_joining()
    begun = script.now
    assert _fail_in_the_broker(script) == SERVER_ERRORS
    assert script.now - begun < script.settings.session_timeout
    error = reported(script)
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the log of the broker" in str(error)
    assert script.at(MemberState.FAILED)


def test_member_keeps_partitions_when_broker_fails_for_a_while() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    for _ in range(3):
        script.pass_time(INTERVAL)
        for _ in range(SERVER_ERRORS - 1):
            script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
            script.pass_time(1.0)
        script.answer()
    assert script.at(MemberState.STABLE)
    assert script.machine.owned == parts(0)
    assert not script.has(StopDelivery)


def test_member_leaves_when_the_broker_fails_for_long() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    for _ in range(SERVER_ERRORS):
        assert script.machine.losses == 0
        script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
        script.pass_time(1.0)
    assert script.take(StopDelivery).partitions == parts(0)
    assert script.take(ConsumerHeartbeat).epoch == -1
    script.poll()
    script.called_back(CallLost)
    assert reported(script).code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_retries_of_a_failing_broker_end_with_the_session() -> None:
    script = ConsumerScript(backoff=Backoff(30.0, 30.0))
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    script.pass_time(36.0)
    script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    script.pass_time(36.0)
    script.answer(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert script.machine.losses == 1


def test_released_instance_id_joins() -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert script.machine.statistics().join_obstruction is not None
    script.pass_time(1.0)
    script.answer(4, by_id(0))
    assert script.at(MemberState.RECONCILING)
    assert script.machine.statistics().join_obstruction is None


def test_fenced_instance_stays_out_until_it_subscribes() -> None:
    script = ConsumerScript(static=True)
    script.to_stable()
    script.pass_time(INTERVAL)
    script.answer(error=ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(reported(script), FencedInstanceIdError)
    assert script.machine.is_fenced
    script.pass_time(60.0)
    assert script.at(MemberState.FAILED)
    assert not script.has(ConsumerHeartbeat), "the id belongs to another member now"


def test_bad_pattern_of_a_member_leaves_and_fails() -> None:
    script = ConsumerScript()
    script.to_stable()
    script.subscribe("t", regex="(")
    sent = script.answer(error=ErrorCode.INVALID_REGULAR_EXPRESSION, message="missing closing )")
    assert sent.regex == "("
    error = reported(script)
    assert isinstance(error, InvalidRegularExpressionError)
    assert "missing closing )" in str(error)
    assert script.take(ConsumerHeartbeat).epoch == -1


@pytest.mark.parametrize("epoch", [2, 1])
def test_rejected_epoch_leads_to_a_heartbeat_if_it_is_current(epoch: int) -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.handle(EpochRejected(epoch))
    assert script.has(ConsumerHeartbeat) is (epoch == 2)


def test_membership_lost_in_a_callback_calls_lost_after_it() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    script.poll()
    script.pass_time(INTERVAL)
    script.answer(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert not script.has(CallLost)
    script.called_back(CallRevoked)
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    assert script.take(CallLost).partitions == parts(0)


@pytest.mark.parametrize("code", [*LOSES, ErrorCode.FENCED_INSTANCE_ID])
def test_heartbeats_end_when_a_leaving_member_is_lost(code: ErrorCode) -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.leave()
    assert script.at(MemberState.LEAVING)
    script.handle(EpochRejected(2))  # the commit of the callback was refused
    script.answer(error=code)
    assert script.machine.generation == -1
    assert script.machine.losses == 1
    if script.has(ConsumerHeartbeat):  # a final error leaves at once
        assert script.take(ConsumerHeartbeat).epoch == -1
    script.pass_time(2.0)
    assert not script.has(ConsumerHeartbeat)
    script.called_back(CallRevoked)
    if script.has(ConsumerHeartbeat):
        assert script.answer(error=ErrorCode.UNKNOWN_MEMBER_ID).epoch == -1
    assert script.at(MemberState.UNSUBSCRIBED)


def test_static_member_releases_its_own_instance_when_it_rejoins() -> None:
    script = ConsumerScript(static=True)
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.answer(error=ErrorCode.FENCED_MEMBER_EPOCH)
    script.poll()
    script.called_back(CallLost)
    joined = script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    released = script.take(ConsumerHeartbeat)
    assert (released.epoch, released.member_id) == (-2, joined.member_id)
    script.pass_time(1.0)
    assert script.answer(5, by_id(0)).epoch == 0
    assert script.machine.generation == 5


def test_static_member_frees_instance_after_lost_join_response() -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    joined = script.fail(ConsumerHeartbeat, KafkaConnectionError("gone"))
    script.pass_time(1.0)
    script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    released = script.take(ConsumerHeartbeat)
    assert (released.epoch, released.member_id) == (-2, joined.member_id)
    script.pass_time(1.0)
    accepted = script.answer(5, by_id(0))
    assert (accepted.epoch, accepted.member_id) == (0, joined.member_id)
    assert script.machine.generation == 5


def test_new_static_member_does_not_release_a_foreign_instance() -> None:
    script = ConsumerScript(static=True)
    script.to_joining()
    script.answer(error=ErrorCode.UNRELEASED_INSTANCE_ID)
    assert not script.has(ConsumerHeartbeat)


@pytest.mark.parametrize(("interval", "used"), [(0.001, MIN_INTERVAL), (2_000_000.0, 15.0)])
def test_heartbeat_interval_of_the_broker_is_bounded(interval: float, used: float) -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(2, by_id(0), interval=interval)
    script.pass_time(used * 0.9)
    assert not script.has(ConsumerHeartbeat)
    script.pass_time(used * 0.2)
    assert script.has(ConsumerHeartbeat)


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_join_is_repeated_when_the_epoch_is_invalid(epoch: int) -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(epoch, by_id(0))
    assert script.at(JOINING)
    script.pass_time(1.0)
    assert script.answer(2, by_id(0)).epoch == 0
    assert script.at(MemberState.RECONCILING)


def test_negative_partition_numbers_are_left_out() -> None:
    script = ConsumerScript()
    script.to_stable(0, -1)
    assert script.machine.owned == parts(0)
