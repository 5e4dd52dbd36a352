"""The reaction of a consumer group member to each signal in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.coordinator_client import TRANSITIONS, MemberState
from kohort.coordinator_client.consumer import _reactions as table
from kohort.coordinator_client.consumer._reactions import (
    CONSUMER_REACTIONS,
    ConsumerReaction,
    ConsumerSignal,
)
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    CallRevoked,
    ConsumerHeartbeat,
    StopDelivery,
)
from kohort.coordinator_client.machine._events import EpochRejected, Tick, TopicIdsSeen
from tests.coordinator_client.consumer_scripts import INTERVAL, RECREATED, ConsumerScript, by_id

# --- situations -----------------------------------------------------------------------------


def _join_pending() -> ConsumerScript:
    script = ConsumerScript()
    script.subscribe()
    return script


def _revoking() -> ConsumerScript:
    script = _stable()
    script.pass_time(INTERVAL)
    script.answer(error=25)
    script.poll()
    return script


def _joining() -> ConsumerScript:
    script = ConsumerScript()
    script.to_joining()
    return script


def _waiting_to_reconcile() -> ConsumerScript:
    script = _stable()
    script.pass_time(INTERVAL)
    script.answer(2, by_id(0))
    return script


def _calling_back() -> ConsumerScript:
    script = _waiting_to_reconcile()
    script.poll()
    assert script.has(CallRevoked)
    return script


def _acknowledging() -> ConsumerScript:
    script = _calling_back()
    script.called_back(CallRevoked)
    script.called_back(CallAssigned)
    return script


def _stable() -> ConsumerScript:
    script = ConsumerScript()
    script.to_stable(0, 1)
    return script


def _calling_back_last() -> ConsumerScript:
    script = _stable()
    script.leave()
    return script


def _failed() -> ConsumerScript:
    script = _joining()
    script.answer(error=81)
    return script


def _fenced() -> ConsumerScript:
    script = _joining()
    script.answer(error=82)
    return script


SITUATIONS: dict[str, tuple[MemberState, Callable[[], ConsumerScript]]] = {
    "unsubscribed": (MemberState.UNSUBSCRIBED, ConsumerScript),
    "join pending": (MemberState.JOIN_PENDING, _join_pending),
    "revoking": (MemberState.REVOKING, _revoking),
    "joining": (MemberState.JOINING, _joining),
    "waiting to reconcile": (MemberState.RECONCILING, _waiting_to_reconcile),
    "calling back": (MemberState.RECONCILING, _calling_back),
    "acknowledging": (MemberState.ACKNOWLEDGING, _acknowledging),
    "stable": (MemberState.STABLE, _stable),
    "calling back last": (MemberState.LEAVING, _calling_back_last),
    "failed": (MemberState.FAILED, _failed),
    "fenced": (MemberState.FAILED, _fenced),
}

# --- signals --------------------------------------------------------------------------------


def _answer(script: ConsumerScript, **answer: object) -> None:
    """Complete the heartbeat in flight, or the next one."""
    if not script.has(ConsumerHeartbeat):
        script.pass_time(INTERVAL, polls=False)
    if script.has(ConsumerHeartbeat):
        script.answer(**answer)  # type: ignore[arg-type]


def _no_poll(script: ConsumerScript) -> None:
    script.now = script.last_poll + script.settings.max_poll_interval + 1
    script.handle(Tick(script.last_poll))


SIGNALS: dict[ConsumerSignal, Callable[[ConsumerScript], object]] = {
    ConsumerSignal.SUBSCRIBED: lambda script: script.subscribe("u"),
    ConsumerSignal.RESUBSCRIBED: lambda script: script.subscribe("t"),
    ConsumerSignal.ASSIGNED: lambda script: _answer(script, epoch=5, assignment=by_id(1)),
    ConsumerSignal.EPOCH_REJECTED: lambda script: script.handle(
        EpochRejected(script.machine.generation)
    ),
    ConsumerSignal.RECREATED: lambda script: script.handle(TopicIdsSeen({"t": RECREATED})),
    ConsumerSignal.LOST: lambda script: _answer(script, error=25),
    ConsumerSignal.FAILED: lambda script: _answer(script, error=112),
    ConsumerSignal.POLL_OVERDUE: _no_poll,
    ConsumerSignal.POLLED: lambda script: script.pass_time(1.0),
    ConsumerSignal.LEAVE: lambda script: script.leave(),
}

UNSEEN = {
    ("unsubscribed", ConsumerSignal.RESUBSCRIBED),  # it has no earlier subscription
    ("joining", ConsumerSignal.LOST),  # refused joins take a new member id
    ("joining", ConsumerSignal.POLL_OVERDUE),  # it is no member yet
    ("fenced", ConsumerSignal.POLLED),  # only a subscription ends it
}


@pytest.mark.parametrize("signal", ConsumerSignal, ids=lambda signal: signal.name)
@pytest.mark.parametrize("situation", SITUATIONS)
def test_signal_in_state_has_the_reaction_of_the_table(
    situation: str, signal: ConsumerSignal
) -> None:
    state, make = SITUATIONS[situation]
    if (situation, signal) in UNSEEN:
        pytest.skip("the signal does not occur here")
    script = make()
    assert script.machine.state is state
    script.commands = [each for each in script.commands if not isinstance(each, StopDelivery)]
    before = list(script.commands)
    epoch = script.machine.generation
    SIGNALS[signal](script)
    now = script.machine.state
    is_called = situation == "calling back"
    match CONSUMER_REACTIONS[state, signal]:
        case ConsumerReaction.IGNORE:
            assert now is state
        case ConsumerReaction.CONTINUE:
            assert now is state or (state, now) == (
                MemberState.ACKNOWLEDGING,
                MemberState.RECONCILING,
            )
        case ConsumerReaction.HEARTBEAT:
            assert now is state
            if state is MemberState.ACKNOWLEDGING:  # one is in flight
                script.answer()
            assert script.has(ConsumerHeartbeat)
        case ConsumerReaction.RECONCILE:
            assert now is MemberState.RECONCILING
        case ConsumerReaction.JOIN:
            assert is_called or now in (
                MemberState.JOIN_PENDING,
                MemberState.JOINING,
                MemberState.FAILED,
            )
            assert script.machine.generation == -1 or signal is ConsumerSignal.ASSIGNED
        case ConsumerReaction.LEAVE:
            if not is_called and situation != "revoking":  # those end first
                assert now in (MemberState.LEAVING, MemberState.UNSUBSCRIBED)
            assert script.machine.leave is not None or now is MemberState.UNSUBSCRIBED
    if is_called:
        assert [each for each in before if each in script.commands] == before
    assert epoch >= -1


# --- the table ------------------------------------------------------------------------------


def test_table_has_a_reaction_for_each_state_and_signal() -> None:
    assert set(CONSUMER_REACTIONS) == {
        (state, signal) for state in MemberState for signal in ConsumerSignal
    }
    cells = sum(len(states) for row in table._ROWS.values() for states in row.values())
    assert cells == len(MemberState) * len(ConsumerSignal), "a state is listed twice for a signal"


def test_each_reaction_of_the_table_is_a_possible_transition() -> None:
    for (state, _), reaction in CONSUMER_REACTIONS.items():
        if reaction is ConsumerReaction.JOIN:
            assert MemberState.JOIN_PENDING in TRANSITIONS[state]
        if reaction is ConsumerReaction.RECONCILE:
            assert MemberState.RECONCILING in TRANSITIONS[state]
        if reaction is ConsumerReaction.LEAVE:
            assert MemberState.LEAVING in TRANSITIONS[state]
