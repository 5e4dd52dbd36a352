"""A member of a consumer group: join, assignment, revocation and acknowledgement."""

from __future__ import annotations

import pytest

from kohort.coordinator_client import MemberState
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    ConsumerHeartbeat,
    ResolveTopics,
    ResumeDelivery,
    StopDelivery,
)
from kohort.coordinator_client.machine._events import Subscribed, TopicIdsSeen
from kohort.coordinator_client.machine._leaving_steps import LEAVE_MIN_SECONDS
from tests.coordinator_client.consumer_scripts import (
    IDS,
    INTERVAL,
    RECREATED,
    ConsumerScript,
    by_id,
    parts,
)


def test_join_sends_all_fields_when_caller_is_in_poll() -> None:
    script = ConsumerScript()
    script.subscribe("t", "u")
    assert script.at(MemberState.JOIN_PENDING)
    assert not script.has(ConsumerHeartbeat)
    script.poll()
    sent = script.take(ConsumerHeartbeat)
    assert script.at(MemberState.JOINING)
    assert (sent.epoch, sent.is_full, sent.topics) == (0, True, frozenset({"t", "u"}))
    assert (sent.owned, sent.regex) == (frozenset(), None)
    assert sent.member_id == script.machine.member_id
    assert len(sent.member_id) == 22


def test_first_response_without_an_assignment_is_not_final() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(2, None)
    script.poll()
    call = script.take(CallAssigned)
    assert (call.added, call.assignment) == (frozenset(), frozenset())
    script.commands.append(call)
    script.called_back(CallAssigned)
    assert script.machine.awaits_partitions_until > script.now
    assert script.at(MemberState.STABLE)
    script.pass_time(INTERVAL)
    script.answer(3, by_id(0))
    script.poll()
    script.called_back(CallAssigned)
    assert script.machine.owned == parts(0)


def test_assignment_is_acknowledged_after_the_callback() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(2, by_id(0, 1))
    assert script.at(MemberState.RECONCILING)
    assert script.machine.generation == 2
    script.poll()
    call = script.take(CallAssigned)
    assert (call.added, call.assignment) == (parts(0, 1), parts(0, 1))
    script.commands.append(call)
    assert not script.has(ConsumerHeartbeat)
    script.called_back(CallAssigned)
    assert script.at(MemberState.ACKNOWLEDGING)
    sent = script.answer(2)
    assert (sent.epoch, sent.is_full, sent.topics) == (2, False, None)
    assert sent.owned == by_id(0, 1)
    assert script.at(MemberState.STABLE)
    assert script.machine.owned == parts(0, 1)


def test_empty_first_assignment_calls_listener_once() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(3, [])
    script.poll()
    assert script.take(CallAssigned).added == frozenset()


def test_regular_heartbeat_has_no_fields() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    sent = script.answer()
    assert (sent.epoch, sent.is_full) == (2, False)
    assert (sent.topics, sent.regex, sent.owned) == (None, None, None)
    assert script.at(MemberState.STABLE)


def test_revocation_withholds_at_once_and_acknowledges_last() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    assert script.take(StopDelivery).partitions == parts(1)
    assert script.machine.owned == parts(0, 1)
    assert script.at(MemberState.RECONCILING)
    script.poll()
    assert script.take(CallRevoked).partitions == parts(1)


def test_heartbeats_omit_owned_partitions_during_callbacks() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    script.poll()
    script.pass_time(INTERVAL)
    assert script.answer().owned is None
    script.called_back(CallRevoked)
    script.called_back(CallAssigned)
    assert script.answer(3).owned == by_id(0)
    assert script.machine.owned == parts(0)
    assert script.at(MemberState.STABLE)


def test_target_that_changes_back_resumes_and_calls_nothing() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    script.pass_time(INTERVAL)
    script.answer(4, by_id(0, 1))
    assert script.take(StopDelivery).partitions == parts(1)
    assert script.take(ResumeDelivery).partitions == parts(1)
    assert script.none_but(ConsumerHeartbeat)
    assert script.answer().owned == by_id(0, 1)
    assert script.at(MemberState.STABLE)


def test_lost_partitions_are_given_up_before_a_new_join() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    member_id = script.machine.member_id
    script.pass_time(INTERVAL)
    script.answer(error=110)
    assert script.take(StopDelivery).partitions == parts(0)
    assert script.at(MemberState.JOIN_PENDING)
    script.poll()
    assert script.at(MemberState.REVOKING)
    script.called_back(CallLost)
    sent = script.answer(5, by_id(0))
    assert (sent.epoch, sent.member_id, sent.owned) == (0, member_id, frozenset())
    assert script.at(MemberState.RECONCILING)


def test_join_without_an_assignment_owns_nothing() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.answer(error=110)
    script.poll()
    script.called_back(CallLost)
    script.answer(5)
    script.poll()
    assert script.take(CallAssigned).assignment == frozenset()


def test_lost_partitions_stay_withheld_during_assigned() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(2, by_id(0))
    script.poll()
    script.pass_time(INTERVAL)
    script.answer(error=110)
    assert script.take(StopDelivery).partitions == parts(0)
    assert script.machine.withheld == parts(0)
    script.called_back(CallAssigned)
    assert script.machine.withheld == parts(0)
    assert script.at(MemberState.JOIN_PENDING)


def test_recreated_topic_is_revoked_then_assigned() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.names = {**script.names, RECREATED: "t"}
    script.pass_time(INTERVAL)
    script.answer(3, [(RECREATED, 0)])
    script.poll()
    script.called_back(CallRevoked)
    call = script.take(CallAssigned)
    assert (call.added, call.assignment) == (parts(0), parts(0))
    script.commands.append(call)
    script.called_back(CallAssigned)
    assert script.answer().owned == frozenset({(RECREATED, 0)})


def test_unknown_topic_is_left_out_and_looked_up_again() -> None:
    script = ConsumerScript()
    script.resolves = False
    script.to_joining("t", "u")
    script.answer(2, by_id(0) | by_id(1, topic="u"))
    command = script.take(ResolveTopics)
    assert command.ids == {topic_id for topic_id, _ in by_id(0) | by_id(1, topic="u")}
    script.commands.append(command)
    script.names = {topic_id: "t" for topic_id, _ in by_id(0)}
    script.resolve()
    script.poll()
    script.called_back(CallAssigned)
    assert script.answer().owned == by_id(0)
    assert script.at(MemberState.STABLE)
    script.names = ConsumerScript().names
    script.pass_time(0.2)
    script.resolve()
    script.poll()
    assert script.take(CallAssigned).added == parts(1, topic="u")


@pytest.mark.parametrize("leave_group", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_leaving_sends_the_epoch_of_the_member(static: bool, leave_group: bool) -> None:
    script = ConsumerScript(static=static)
    script.to_stable(0)
    script.leave(leave_group=leave_group)
    assert script.at(MemberState.LEAVING)
    script.called_back(CallRevoked)
    if static or leave_group:
        assert script.answer().epoch == (-1 if leave_group else -2)
    assert script.at(MemberState.UNSUBSCRIBED)
    assert script.none_but(StopDelivery)


def test_leaving_calls_no_assigned_after_a_revocation() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(3, by_id(0, 2))
    script.poll()
    script.leave()
    script.called_back(CallRevoked)
    assert script.at(MemberState.LEAVING)
    assert not script.has(CallAssigned)
    assert script.take(CallRevoked).partitions == parts(0)


def test_leaving_is_brief_when_no_join_was_accepted() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.leave(timeout=60.0)
    script.pass_time(LEAVE_MIN_SECONDS)
    assert script.at(MemberState.UNSUBSCRIBED)


def test_leaving_sends_nothing_after_a_refused_join() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(error=30)
    assert script.at(MemberState.FAILED)
    script.leave()
    assert script.at(MemberState.UNSUBSCRIBED)
    assert not script.has(ConsumerHeartbeat)


def test_changed_subscription_is_sent_at_once() -> None:
    script = ConsumerScript()
    script.to_stable(0)
    script.subscribe("t", "u")
    sent = script.answer(3)
    assert (sent.topics, sent.is_full, sent.owned) == (frozenset({"t", "u"}), False, None)
    assert not script.has(AwaitPoll)


def test_recreated_topic_is_withheld_and_asks_for_its_assignment() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.handle(TopicIdsSeen({"t": IDS["t"]}))
    assert not script.has(StopDelivery)
    script.handle(TopicIdsSeen({"t": RECREATED}))
    assert script.take(StopDelivery).partitions == parts(0, 1)
    script.answer()
    script.handle(TopicIdsSeen({"t": RECREATED}))
    assert not script.has(StopDelivery), "it is withheld already"
    script.pass_time(0.1)
    script.names = {RECREATED: "t"}
    script.answer(3, [(RECREATED, 0)])
    script.poll()
    script.called_back(CallRevoked)
    assert script.take(CallAssigned).added == parts(0)
    script.handle(TopicIdsSeen({"t": RECREATED}))
    assert script.none_but(ConsumerHeartbeat)


def test_target_that_changes_twice_in_assigned_resumes_delivery() -> None:
    script = ConsumerScript()
    script.to_joining()
    script.answer(2, by_id(0, 1))
    script.poll()
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    assert script.take(StopDelivery).partitions == parts(1)
    script.pass_time(INTERVAL)
    script.answer(4, by_id(0, 1))
    assert not script.has(ResumeDelivery), "the callback still runs"
    assert script.machine.withheld == parts(1)
    script.called_back(CallAssigned)
    assert script.take(ResumeDelivery).partitions == parts(1)
    script.answer()
    assert script.at(MemberState.STABLE)


def test_revocation_does_not_wait_for_the_names_of_other_topics() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1, topics=("t", "u"))
    script.resolves = False
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    assert script.take(StopDelivery).partitions == parts(1)
    assert script.has(ResolveTopics), "the look-up runs meanwhile"
    script.poll()
    script.called_back(CallRevoked)
    assert script.machine.owned == parts(0)
    assert not script.has(CallAssigned), "the names come first"
    script.resolve()
    script.poll()
    assert script.take(CallAssigned).added == parts(0, topic="u")


def test_revocation_is_acknowledged_while_names_are_looked_up() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1, topics=("t", "u"))
    script.resolves = False
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    script.poll()
    script.called_back(CallRevoked)
    assert script.answer(3, by_id(0) | by_id(0, 1, topic="u")).owned == by_id(0)
    assert script.at(MemberState.RECONCILING)
    assert not script.has(ConsumerHeartbeat), "one acknowledgement is enough"
    script.resolve()
    script.poll()
    script.called_back(CallAssigned)
    assert script.machine.owned == parts(0) | parts(0, 1, topic="u")
    assert script.answer(3).owned == by_id(0) | by_id(0, 1, topic="u")
    assert script.at(MemberState.STABLE)


def test_lookup_that_ends_before_revocation_needs_no_other_poll() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1, topics=("t", "u"))
    script.resolves = False
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    script.resolve()
    script.poll()
    script.called_back(CallRevoked)
    assert script.take(CallAssigned).added == parts(0, topic="u")


def test_revocation_interrupts_the_wait_for_names() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1, topics=("t", "u"))
    script.resolves = False
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0, 1) | by_id(0, topic="u"))
    assert not script.has(AwaitPoll)
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    script.poll()
    script.called_back(CallRevoked)
    assert script.machine.owned == parts(0)
    assert len([each for each in script.commands if isinstance(each, ResolveTopics)]) == 1


def test_revocation_taken_back_still_waits_for_names() -> None:
    script = ConsumerScript()
    script.to_stable(0, 1, topics=("t", "u"))
    script.resolves = False
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    script.pass_time(INTERVAL)
    script.answer(3, by_id(0, 1) | by_id(0, topic="u"))
    assert not script.has(CallAssigned)
    script.resolve()
    script.poll()
    assert script.take(CallAssigned).added == parts(0, topic="u")
    assert not script.has(CallRevoked)


def test_partitions_of_an_unsubscribed_topic_are_not_added() -> None:
    script = ConsumerScript()
    script.to_joining("u")
    script.subscribe("t")
    script.answer(2, by_id(0, topic="u"))
    script.poll()
    assert script.take(CallAssigned).assignment == frozenset()
    assert script.answer(2).topics == frozenset({"t"})


def test_left_out_partitions_are_added_when_subscribed_again() -> None:
    script = ConsumerScript()
    script.to_joining("u")
    script.subscribe("t")
    script.answer(2, by_id(0, topic="u"))
    script.poll()
    script.called_back(CallAssigned)
    script.subscribe("u")
    script.poll()
    call = script.take(CallAssigned)
    assert call.added == parts(0, topic="u")


def test_partitions_of_a_replaced_pattern_are_not_added() -> None:
    script = ConsumerScript()
    script.subscribe("t", regex="u")
    script.poll()
    script.subscribe("t", regex="v")
    script.answer(2, by_id(0) | by_id(0, topic="u"))
    script.poll()
    assert script.take(CallAssigned).added == parts(0)
    assert script.answer(3, by_id(0) | by_id(0, topic="v")).regex == "v"


@pytest.mark.parametrize("polls_first", [False, True])
@pytest.mark.parametrize("former", ["t.*", ""], ids=["pattern", "names"])
def test_partitions_that_a_new_pattern_keeps_are_added(former: str, polls_first: bool) -> None:
    script = ConsumerScript()
    script.handle(Subscribed(frozenset() if former else frozenset({"t"}), former))
    script.poll()
    script.answer(2, by_id(0))
    script.handle(Subscribed(frozenset(), "t"))
    if polls_first:
        script.poll()
        script.called_back(CallAssigned)
        assert script.machine.owned == frozenset(), "the coordinator may take them away"
    assert script.answer(3).regex == "t", "the response has no assignment, because it stays"
    script.poll()
    assert script.take(CallAssigned).added == parts(0)
