"""Static members (KIP-345), and their return without a rebalance as in KIP-814."""

from __future__ import annotations

from tests.broker.groups.machine import PROTOCOLS, Machine


def stable_static(*instances: str, rebalance_ms: int = 30_000) -> tuple[Machine, dict[str, str]]:
    """Return a stable group of static members, and their ids by instance with the leader first."""
    machine = Machine()
    ids: dict[str, str] = {}
    for instance in instances:
        machine.send_join(instance=instance, rebalance_ms=rebalance_ms)
        for known, member_id in list(ids.items()):
            machine.send_join(member_id, instance=known, rebalance_ms=rebalance_ms)
        ids = {name: machine.group.static_members[name] for name in (*ids, instance)}
    for instance, member_id in reversed(ids.items()):
        given = {one: b"for " + name.encode() for name, one in ids.items()}
        machine.send_sync(member_id, assignments=given, instance=instance)
    assert machine.group.state.value == "Stable"
    return machine, ids


def test_a_static_member_is_in_at_once() -> None:
    machine = Machine()
    response = machine.joined(machine.send_join(instance="i"))
    assert response.error_code == 0
    assert response.member_id.startswith("i-")
    assert [m.group_instance_id for m in response.members] == ["i"]


def test_returning_leader_keeps_generation_and_skips_assignment() -> None:
    machine, ids = stable_static("a", "b")
    generation = machine.group.generation
    response = machine.joined(machine.send_join(instance="a"))
    assert (response.error_code, response.generation_id) == (0, generation)
    assert response.member_id != ids["a"]
    assert response.leader == response.member_id
    assert response.skip_assignment
    assert {m.group_instance_id for m in response.members} == {"a", "b"}
    assert machine.group.state.value == "Stable"
    sync = machine.send_sync(response.member_id, instance="a")
    assert machine.synced(sync).assignment == b"for a"


def test_returning_leader_does_not_lead_before_version_9() -> None:
    machine, ids = stable_static("a", "b")
    response = machine.joined(machine.send_join(instance="a", version=8))
    assert response.leader == ids["a"] != response.member_id
    assert (response.members, response.skip_assignment) == ([], False)


def test_a_follower_that_returns_gets_its_assignment_back() -> None:
    machine, _ = stable_static("a", "b")
    response = machine.joined(machine.send_join(instance="b"))
    assert (response.members, response.skip_assignment) == ([], False)
    sync = machine.send_sync(response.member_id, instance="b")
    assert machine.synced(sync).assignment == b"for b"


def test_the_old_member_is_fenced_everywhere() -> None:
    machine, ids = stable_static("a", "b")
    new = machine.joined(machine.send_join(instance="a")).member_id
    old = ids["a"]
    assert machine.beat(old, instance="a") == 82
    assert machine.commit(old, instance="a") == 82
    assert machine.joined(machine.send_join(old, instance="a")).error_code == 82
    assert machine.synced(machine.send_sync(old, instance="a")).error_code == 82
    assert machine.leave(old, instance="a") == 82
    assert machine.beat(new, instance="a") == 0
    assert machine.beat(new, instance="other") == 25


def test_rebalance_starts_when_new_protocols_change_the_vote() -> None:
    machine = Machine()
    both = (("range", b""), ("rr", b""))
    machine.send_join(instance="a", protocols=both)
    member = machine.group.static_members["a"]
    machine.send_sync(member, assignments={member: b"x"}, instance="a")
    response = machine.joined(
        machine.send_join(instance="a", protocols=(("rr", b""), ("range", b"")))
    )
    assert response.generation_id == 2
    assert machine.group.protocol == "rr"


def test_rebalance_starts_on_return_while_assignment_is_awaited() -> None:
    machine = Machine()
    machine.send_join(instance="a")
    old = machine.group.static_members["a"]
    parked = machine.send_join(version=3)
    machine.send_join(old, instance="a")
    assert machine.group.state.value == "CompletingRebalance"
    dynamic = machine.joined(parked).member_id
    waiting = machine.send_sync(dynamic)
    machine.send_join(instance="a")
    assert machine.synced(waiting).error_code == 27
    assert machine.group.state.value == "PreparingRebalance"


def test_a_return_fences_what_the_old_member_has_parked() -> None:
    machine, ids = stable_static("a", "b")
    parked = machine.send_join(ids["a"], instance="a")
    machine.send_join(instance="a")
    response = machine.joined(parked)
    assert (response.error_code, response.member_id) == (82, ids["a"])


def test_absent_static_member_stays_until_its_sync_is_overdue() -> None:
    machine, ids = stable_static("a", "b", rebalance_ms=2_000)
    parked = machine.send_join(ids["a"], instance="a", rebalance_ms=2_000)
    machine.pass_time(2)
    response = machine.joined(parked)
    assert {m.group_instance_id for m in response.members} == {"a", "b"}
    machine.send_sync(ids["a"], instance="a")
    machine.pass_time(1.9)
    assert list(machine.group.static_members) == ["a", "b"]
    machine.pass_time(0.2)
    assert list(machine.group.static_members) == ["a"]


def test_removal_by_instance_id_alone() -> None:
    machine, _ = stable_static("a", "b")
    assert machine.leave(instance="b") == 0
    assert machine.leave(instance="b") == 25
    assert list(machine.group.static_members) == ["a"]


def test_two_kinds_of_members_share_a_group() -> None:
    machine = Machine()
    machine.send_join(instance="a")
    static = machine.group.static_members["a"]
    dynamic = machine.new_member_id(PROTOCOLS)
    replies = [machine.send_join(dynamic), machine.send_join(static, instance="a")]
    assert {machine.joined(reply).generation_id for reply in replies} == {2}
