"""The table of the member's states."""

from __future__ import annotations

import pytest

from kohort.coordinator_client import TRANSITIONS, MemberState
from kohort.coordinator_client.machine._state import StateCell


def test_every_state_is_in_the_table_and_has_its_paragraph() -> None:
    assert set(TRANSITIONS) == set(MemberState)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {MemberState.UNSUBSCRIBED}
    todo = [MemberState.UNSUBSCRIBED]
    while todo:
        for follower in TRANSITIONS[todo.pop()] - reached:
            reached.add(follower)
            todo.append(follower)
    assert reached == set(MemberState)
    assert all(TRANSITIONS[state] for state in MemberState)


def test_every_state_of_a_member_leads_out_of_the_group() -> None:
    for state in MemberState:
        if state in (MemberState.UNSUBSCRIBED, MemberState.FAILED):
            continue
        assert state is MemberState.LEAVING or MemberState.LEAVING in TRANSITIONS[state]


def test_transition_outside_the_table_raises_and_changes_nothing() -> None:
    cell = StateCell("g")
    with pytest.raises(RuntimeError, match="UNSUBSCRIBED to STABLE"):
        cell.move(MemberState.STABLE, "a mistake")
    states = [cell.state]
    cell.move(MemberState.JOIN_PENDING, "subscribed")
    states.append(cell.state)
    assert states == [MemberState.UNSUBSCRIBED, MemberState.JOIN_PENDING]
