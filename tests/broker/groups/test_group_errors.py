"""Error codes of each request in each state of the group, as probed on Kafka 4.3.1."""

from __future__ import annotations

import pytest

from kohort.broker.groups import TRANSITIONS, GroupState
from kohort.broker.groups.classic._requests import heartbeat
from kohort.protocol.messages import HeartbeatRequest
from tests.broker.groups.machine import PROTOCOLS, Machine


def in_state(state: str) -> tuple[Machine, str, str]:
    """Return a group of two in the state, with the ids of its leader and its follower."""
    machine = Machine()
    if state == "CompletingRebalance":
        first, second = machine.form(PROTOCOLS, PROTOCOLS)
    else:
        first, second = machine.form_stable(2)
    if state == "PreparingRebalance":
        machine.send_join(first)
    assert machine.group.state.value == state
    return machine, first, second


@pytest.mark.parametrize(
    ("state", "error"), [("PreparingRebalance", 27), ("CompletingRebalance", 0), ("Stable", 0)]
)
def test_heartbeat(state: str, error: int) -> None:
    machine, _, second = in_state(state)
    assert machine.beat(second) == error
    assert machine.beat(second, generation=99) == 22
    assert machine.beat("nobody") == 25


@pytest.mark.parametrize(
    ("state", "error"), [("PreparingRebalance", 0), ("CompletingRebalance", 27), ("Stable", 0)]
)
def test_offset_commit(state: str, error: int) -> None:
    machine, _, second = in_state(state)
    assert machine.commit(second) == error
    assert machine.commit(second, generation=99) == 22
    assert machine.commit("nobody") == 25
    assert machine.commit("", generation=-1) == 25, "not a member, and the group has some"


def test_a_group_without_members_takes_commits_of_anybody() -> None:
    machine = Machine()
    assert machine.commit("", generation=-1) == 0
    assert machine.commit("x", generation=3) == 25


def test_metadata_of_a_commit_is_limited() -> None:
    machine = Machine()
    assert machine.commit("", generation=-1, metadata="x" * 4096) == 0
    assert machine.commit("", generation=-1, metadata="x" * 4097) == 12
    assert machine.commit("", generation=-1, metadata="é" * 4096) == 0, "characters count"
    assert machine.commit("", generation=-1, metadata="\U0001f600" * 2049) == 12, "as Java's"


def test_sync_group() -> None:
    machine, first, second = in_state("CompletingRebalance")
    assert machine.synced(machine.send_sync(second, generation=99)).error_code == 22
    assert machine.synced(machine.send_sync(second, protocol="other")).error_code == 23
    assert machine.synced(machine.send_sync(second, protocol_type="other")).error_code == 23
    assert machine.synced(machine.send_sync("nobody")).error_code == 25
    parked = machine.send_sync(second, protocol="range", protocol_type="consumer")
    assert parked not in machine.answers
    leader = machine.send_sync(first, assignments={first: b"1", second: b"2", "nobody": b"3"})
    assert machine.synced(leader).assignment == b"1"
    answer = machine.synced(parked)
    assert (answer.error_code, answer.assignment) == (0, b"2")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert machine.synced(machine.send_sync(second)).assignment == b"2", "again, when stable"


def test_sync_group_while_a_rebalance_is_prepared() -> None:
    machine, _, second = in_state("PreparingRebalance")
    assert machine.synced(machine.send_sync(second)).error_code == 27


def test_members_that_the_leader_forgot_get_an_empty_assignment() -> None:
    machine, first, second = in_state("CompletingRebalance")
    parked = machine.send_sync(second)
    machine.send_sync(first, assignments={first: b"1"})
    assert (machine.synced(parked).error_code, machine.synced(parked).assignment) == (0, b"")


def test_a_rebalance_sends_those_who_wait_for_an_assignment_back() -> None:
    machine, _, second = in_state("CompletingRebalance")
    parked = machine.send_sync(second)
    machine.send_join(version=3)
    assert machine.synced(parked).error_code == 27
    assert machine.group.state.value == "PreparingRebalance"


def test_members_without_sync_are_dropped_at_rebalance_timeout() -> None:
    machine, first, second = in_state("CompletingRebalance")
    machine.send_sync(first, assignments={first: b"1", second: b"2"})
    for _ in range(6):
        machine.beat(first)
        machine.beat(second)
        machine.pass_time(5)
    assert list(machine.group.members) == [first]


def test_a_heartbeat_keeps_the_session() -> None:
    machine, first, second = in_state("Stable")
    for _ in range(4):
        machine.pass_time(9)
        assert machine.beat(second) in (0, 27)
    assert list(machine.group.members) == [second], "the silent one is gone"
    assert machine.beat(first) == 25


def test_a_commit_keeps_the_session() -> None:
    machine, _, second = in_state("Stable")
    machine.pass_time(9)
    machine.commit(second)
    machine.pass_time(9)
    assert second in machine.group.members


def test_leaving() -> None:
    machine, first, second = in_state("Stable")
    assert machine.leave("nobody") == 25
    assert machine.leave(instance="unknown") == 25
    assert machine.leave(first) == 0
    assert machine.group.state.value == "PreparingRebalance"
    assert machine.leave(second) == 0
    assert machine.group.state.value == "Empty"
    assert machine.group.generation == 3
    assert (machine.group.leader, machine.group.protocol) == (None, None)


def test_a_pending_member_can_leave_and_frees_the_barrier() -> None:
    machine, first, second = in_state("Stable")
    pending = machine.new_member_id()
    replies = [machine.send_join(first), machine.send_join(second)]
    assert not set(replies) & set(machine.answers)
    assert machine.leave(pending) == 0
    assert [machine.joined(reply).error_code for reply in replies] == [0, 0]


def test_leaving_answers_what_the_member_has_parked() -> None:
    machine, first, second = in_state("Stable")
    parked = machine.send_join(second, (("range", b"changed"),))
    machine.leave(second)
    assert machine.joined(parked).error_code == 25
    assert first in machine.group.members


def test_a_dead_group_sends_everybody_away() -> None:
    machine, first, _ = in_state("Stable")
    machine.group.state = GroupState.DEAD
    assert machine.joined(machine.send_join()).error_code == 15
    assert machine.synced(machine.send_sync(first)).error_code == 15
    assert machine.beat(first) == machine.commit(first) == machine.leave(first) == 15


def test_states_follow_the_table_and_nothing_else() -> None:
    machine = Machine()
    for state, following in TRANSITIONS.items():
        for other in set(GroupState) - following:
            machine.group.state = state
            with pytest.raises(AssertionError, match=r"->"):
                machine.group.transition(other, 0.0)


def test_an_expired_session_is_not_noticed_twice() -> None:
    machine, first, second = in_state("Stable")
    machine.pass_time(60)
    assert machine.group.members == {}
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=first)
    assert heartbeat(machine.group, request, machine.now) == 25
    assert second not in machine.group.members
    assert machine.env.timers.next_deadline() is None
