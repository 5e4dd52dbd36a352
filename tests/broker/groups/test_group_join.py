"""Joining: the barrier, member ids, the vote, the leader, timers."""

from __future__ import annotations

import pytest

from tests.broker.groups.machine import PROTOCOLS, Machine


def names(*protocols: str) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, name.encode()) for name in protocols)


def test_a_first_join_gets_a_member_id_and_starts_no_rebalance() -> None:
    machine = Machine()
    response = machine.joined(machine.send_join(client="app"))
    assert response.error_code == 79
    assert response.member_id.startswith("app-")
    assert (response.generation_id, response.members) == (-1, [])
    assert machine.group.state.value == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_before_version_4_the_member_is_in_at_once(version: int) -> None:
    machine = Machine()
    response = machine.joined(machine.send_join(version=version))
    assert response.error_code == 0
    assert response.leader == response.member_id
    assert machine.group.generation == 1


def test_a_member_id_that_is_not_used_expires_with_the_session() -> None:
    machine = Machine()
    (first,) = machine.form(PROTOCOLS)
    machine.send_sync(first, assignments={first: b"A"})
    machine.new_member_id(session_ms=6_000)
    parked = machine.send_join(first)  # the leader requests a rebalance
    assert parked not in machine.answers, "the barrier waits for the pending member"
    machine.pass_time(5.9)
    assert parked not in machine.answers
    machine.pass_time(0.2)
    assert machine.joined(parked).generation_id == 2


def test_the_generation_goes_up_when_the_join_completes() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    before = machine.group.generation
    parked = machine.send_join(first)
    assert machine.group.generation == before
    assert machine.beat(second) == 27
    other = machine.send_join(second)
    assert machine.joined(parked).generation_id == machine.joined(other).generation_id == before + 1


def test_only_the_leader_is_told_the_members() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    leader, follower = machine.send_join(first), machine.send_join(second)
    assert {m.member_id for m in machine.joined(leader).members} == {first, second}
    assert machine.joined(follower).members == []
    assert machine.joined(follower).leader == first


def test_members_vote_for_their_first_protocol_that_all_support() -> None:
    machine = Machine()
    machine.form(
        names("range", "roundrobin", "custom"),
        names("range", "roundrobin", "sticky"),
        names("roundrobin", "range", "sticky"),
    )
    assert machine.group.protocol == "range"


def test_the_majority_wins_over_the_first_member() -> None:
    machine = Machine()
    machine.form(names("range", "rr"), names("rr", "range"), names("rr", "range"))
    assert machine.group.protocol == "rr"


def test_leader_gets_the_metadata_of_the_chosen_protocol() -> None:
    machine = Machine()
    ids = machine.form(names("range", "rr"), names("rr"))
    reply = machine.send_join(ids[0], names("range", "rr"))
    machine.send_join(ids[1], names("rr"))
    assert {bytes(m.metadata) for m in machine.joined(reply).members} == {b"rr"}


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_member_without_a_common_protocol_is_refused(instance: str | None) -> None:
    machine = Machine()
    machine.form_stable(1)
    response = machine.joined(machine.send_join(protocols=names("other"), instance=instance))
    assert (response.error_code, response.member_id) == (23, "")
    assert machine.joined(machine.send_join(protocol_type="connect")).error_code == 23


def test_no_protocol_at_all_is_refused_also_by_an_empty_group() -> None:
    machine = Machine()
    assert machine.joined(machine.send_join(protocols=())).error_code == 23
    assert machine.joined(machine.send_join(protocol_type="")).error_code == 23


def test_a_protocol_named_twice_counts_once() -> None:
    machine = Machine()
    machine.form(names("range", "range"))
    assert machine.group.protocol == "range"
    machine.new_member_id(names("range"))


def test_an_unknown_member_id_is_told_so_and_echoed() -> None:
    machine = Machine()
    machine.form_stable(1)
    response = machine.joined(machine.send_join("nobody"))
    assert (response.error_code, response.member_id, response.protocol_name) == (
        25,
        "nobody",
        None,
    )


def test_the_leader_is_kept_when_it_rejoins() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    machine.send_join(second, (("range", b"changed"),))
    machine.send_join(first)
    assert machine.group.leader == first


def test_a_leader_that_does_not_come_is_replaced_by_one_that_did() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    parked = machine.send_join(second, (("range", b"changed"),), rebalance_ms=8_000)
    machine.pass_time(10.1)
    response = machine.joined(parked)
    assert (response.leader, [m.member_id for m in response.members]) == (second, [second])
    assert machine.beat(first) == 25


def test_a_silent_member_ends_the_barrier_when_its_session_does() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    machine.pass_time(4)
    parked = machine.send_join(first)
    machine.pass_time(5.9)
    assert parked not in machine.answers
    machine.pass_time(0.2)
    assert [m.member_id for m in machine.joined(parked).members] == [first]
    assert machine.beat(second) == 25


def test_rebalance_timeout_drops_members_that_only_heartbeat() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    parked = machine.send_join(first)
    for _ in range(6):
        assert machine.beat(second) == 27
        assert parked not in machine.answers
        machine.pass_time(5)
    assert machine.joined(parked).generation_id == machine.group.generation
    assert machine.beat(second) == 25


def test_a_parked_member_needs_no_heartbeat() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    parked = machine.send_join(first, session_ms=6_000)
    for _ in range(5):
        machine.pass_time(5)
        machine.beat(second)
    assert parked not in machine.answers
    assert first in machine.group.members


def test_new_member_that_waits_is_dropped_after_five_minutes() -> None:
    machine = Machine()
    first, _ = machine.form_stable(2)
    del first
    third = machine.new_member_id()
    parked = machine.send_join(third, rebalance_ms=1_000_000)
    for _ in range(33):
        machine.pass_time(9)
        for member_id in machine.group.members:
            if member_id != third:
                machine.beat(member_id)
    assert parked not in machine.answers
    machine.pass_time(9)
    assert machine.joined(parked).error_code == 25


def test_initial_delay_is_extended_by_each_new_member() -> None:
    machine = Machine(initial_rebalance_delay_ms=3_000)
    first = machine.send_join(version=3, rebalance_ms=10_000)
    machine.pass_time(2)
    second = machine.send_join(version=3, rebalance_ms=10_000)
    machine.pass_time(2)
    assert machine.answers == {}, "the second one extended the delay"
    machine.pass_time(2)
    assert machine.joined(first).generation_id == machine.joined(second).generation_id == 1


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    machine = Machine(initial_rebalance_delay_ms=3_000)
    replies = []
    for _ in range(6):
        replies.append(machine.send_join(version=3, rebalance_ms=7_000))
        machine.pass_time(1.5)
    assert machine.joined(replies[0]).generation_id == 1


def test_unchanged_follower_rejoins_the_current_generation() -> None:
    machine = Machine()
    _, second = machine.form_stable(2)
    response = machine.joined(machine.send_join(second))
    assert (response.error_code, response.generation_id, response.members) == (
        0,
        machine.group.generation,
        [],
    )
    assert machine.group.state.value == "Stable"


@pytest.mark.parametrize("who", ["leader", "changed"])
def test_the_leader_or_a_change_starts_a_rebalance(who: str) -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    if who == "leader":
        machine.send_join(first)
    else:
        machine.send_join(second, (("range", b"changed"),))
    assert machine.group.state.value == "PreparingRebalance"


def test_join_response_is_repeated_while_assignment_is_awaited() -> None:
    machine = Machine()
    first, second = machine.form(PROTOCOLS, PROTOCOLS)
    again = machine.joined(machine.send_join(first))
    assert {m.member_id for m in again.members} == {first, second}
    assert machine.joined(machine.send_join(second)).members == []
    assert machine.group.state.value == "CompletingRebalance"


def test_abandoned_join_is_answered_when_its_member_rejoins() -> None:
    machine = Machine()
    first, _ = machine.form_stable(2)
    given_up = machine.send_join(first)
    machine.send_join(first)
    assert machine.joined(given_up).error_code == 27


def test_full_group_refuses_new_members_and_accepts_rejoins() -> None:
    machine = Machine(max_size=2)
    first, second = machine.form_stable(2)
    assert machine.joined(machine.send_join(version=3)).error_code == 81
    replies = [machine.send_join(first), machine.send_join(second)]
    assert [machine.joined(reply).error_code for reply in replies] == [0, 0]


def test_version_0_has_one_timeout_for_both() -> None:
    machine = Machine()
    machine.send_join(version=0, session_ms=7_000, rebalance_ms=-1)
    (member,) = machine.group.members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7_000, 7_000)
