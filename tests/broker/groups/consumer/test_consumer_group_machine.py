"""The machine of consumer groups: reconciliation, timers, patterns, static members, loading."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kohort.broker.groups import (
    AnyGroup,
    ClassicGroup,
    ConsumerGroup,
    GroupEnvironment,
    GroupLimits,
    load_groups,
)
from kohort.broker.groups.consumer._member import AssignmentState
from tests.broker.groups.consumer.consumer_machine import ConsumerMachine
from tests.broker.groups.consumer.group_lives import lives, record_type


@pytest.fixture
def machine() -> ConsumerMachine:
    made = ConsumerMachine()
    made.topics.create("t", 4)
    return made


def types(machine: ConsumerMachine) -> list[list[int]]:
    """Return the record types of each batch."""
    return [[record_type(record) for record in batch] for batch in machine.batches]


def two_members(machine: ConsumerMachine) -> None:
    """Let ``a`` and ``b`` share the topic t."""
    machine.join("a")
    machine.join("b")
    machine.beat("a", 2)
    machine.beat("a", 2, {"t": [0, 1]})
    machine.beat("b", 3)
    assert machine.group.state.value == "Stable"


# Reconciliation


def test_partitions_move_only_after_their_owner_gave_up(machine: ConsumerMachine) -> None:
    assert machine.assignment(machine.join("a")) == {"t": [0, 1, 2, 3]}
    assert machine.assignment(machine.join("b")) == {}
    assert machine.assignment(machine.beat("b", 3)) is None
    told = machine.beat("a", 2)
    assert (told.member_epoch, machine.assignment(told)) == (2, {"t": [0, 1]})
    assert machine.beat("a", 2, {"t": [0, 1, 2, 3]}).member_epoch == 2, "it owns them still"
    assert machine.assignment(machine.beat("b", 3)) is None
    assert machine.beat("a", 2, {"t": [0, 1]}).member_epoch == 3
    assert machine.assignment(machine.beat("b", 3)) == {"t": [2, 3]}
    assert machine.group.state.value == "Stable"


def test_member_jumps_over_several_targets_after_it_gave_up(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.join("b")
    machine.beat("a", 2)
    machine.join("c")
    machine.join("d")
    response = machine.beat("a", 2, {"t": [0, 1]})
    assert (response.member_epoch, machine.assignment(response)) == (2, {"t": [0]})
    assert machine.beat("a", 2, {"t": [0]}).member_epoch == 5


def test_full_request_is_answered_with_whole_assignment(machine: ConsumerMachine) -> None:
    machine.join("a")
    owned = {"t": [0, 1, 2, 3]}
    assert machine.assignment(machine.beat("a", 2, owned)) is None
    full = machine.beat("a", 2, owned, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    assert machine.assignment(full) == owned


def test_previous_epoch_is_accepted_with_owned_partitions(machine: ConsumerMachine) -> None:
    two_members(machine)
    machine.beat("b", -1)
    assert machine.beat("a", 3).member_epoch == 4
    assert machine.beat("a", 3).error_code == 110
    assert machine.beat("a", 3, {"t": [0, 1]}).error_code == 0
    assert machine.beat("a", 2, {"t": [0, 1]}).error_code == 110


def test_known_member_rejoins_with_epoch_0(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.batches.clear()
    response = machine.join("a")
    assert (response.member_epoch, machine.assignment(response)) == (2, {"t": [0, 1, 2, 3]})
    assert machine.batches == []


def test_new_partitions_are_noticed_at_next_heartbeat(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.topics.grow("t", 6)
    response = machine.beat("a", 2)
    assert (response.member_epoch, machine.assignment(response)) == (
        3,
        {"t": [0, 1, 2, 3, 4, 5]},
    )


def test_topics_without_subscriber_do_not_change_epoch(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.topics.create("other", 1)
    assert machine.beat("a", 2).member_epoch == 2


def test_partitions_of_a_deleted_topic_are_revoked(machine: ConsumerMachine) -> None:
    machine.topics.create("u", 1)
    machine.join("a", ["t", "u"])
    machine.topics.delete("u")
    response = machine.beat("a", 2)
    assert (response.member_epoch, machine.assignment(response)) == (2, {"t": [0, 1, 2, 3]})
    assert machine.beat("a", 2, {"t": [0, 1, 2, 3]}).member_epoch == 3


def test_recreated_topic_has_its_new_id_in_the_assignment(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.topics.delete("t")
    machine.topics.create("t", 1, b"2" * 16)
    assert machine.assignment(machine.beat("a", 2)) == {}
    response = machine.beat("a", 2, {})
    assert response.assignment is not None
    (topic,) = response.assignment.topic_partitions
    assert (bytes(topic.topic_id), list(topic.partitions)) == (b"2" * 16, [0])


def test_member_of_no_topic_gets_nothing_and_others_all(machine: ConsumerMachine) -> None:
    assert machine.assignment(machine.join("a", [])) == {}
    assert machine.assignment(machine.join("b")) == {"t": [0, 1, 2, 3]}


def test_change_of_rack_or_timeout_writes_only_the_member(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.batches.clear()
    machine.beat("a", 2, rack_id="r")
    machine.beat("a", 2, rebalance_timeout_ms=5)
    assert types(machine) == [[5], [5]]


def test_change_of_the_assignor_of_most_members_bumps_the_epoch(machine: ConsumerMachine) -> None:
    machine.join("a", [])
    machine.join("b", [], server_assignor="uniform")
    machine.batches.clear()
    for member_id, assignor, preferred in (
        ("b", "range", "range"),
        ("a", "range", "range"),
        ("a", "uniform", "uniform"),  # the broker's first of two with equal votes
    ):
        before, was = machine.group.epoch, machine.group.assignor_name
        beat = machine.beat(
            member_id, machine.group.members[member_id].epoch, server_assignor=assignor
        )
        assert (beat.error_code, machine.group.assignor_name) == (0, preferred)
        assert machine.group.epoch == before + (preferred != was)
    assert [each[:2] for each in types(machine)] == [[5, 3], [5, 8], [5, 3]]


def test_group_uses_assignor_that_most_members_name(machine: ConsumerMachine) -> None:
    machine.join("a")
    assert machine.group.assignor_name == "uniform"
    machine.join("b", server_assignor="range")
    assert machine.group.assignor_name == "range"


def test_a_heartbeat_writes_one_batch(machine: ConsumerMachine) -> None:
    machine.join("a")
    assert types(machine) == [[5, 3, 7, 6, 8]]


# Assignment interval


def test_target_waits_for_the_assignment_interval() -> None:
    machine = ConsumerMachine(consumer_assignment_interval_ms=1000)
    machine.topics.create("t", 4)
    machine.join("a")
    joined = machine.join("b")
    assert (joined.member_epoch, machine.assignment(joined)) == (2, {})
    assert machine.group.state.value == "Assigning"
    machine.pass_time(0.9)
    assert machine.beat("b", 2).member_epoch == 2
    machine.pass_time(0.1)
    assert machine.group.assignment_epoch == 2, "no time but a heartbeat computes it"
    response = machine.beat("a", 2)
    assert machine.assignment(response) == {"t": [0, 1]}
    assert machine.group.assignment_epoch == 3


def test_leave_computes_nothing_before_another_heartbeat(machine: ConsumerMachine) -> None:
    two_members(machine)
    machine.batches.clear()
    assert machine.beat("b", -1).member_epoch == -1
    assert types(machine) == [[8, 7, 5, 3]]
    assert machine.assignment(machine.beat("a", 3)) == {"t": [0, 1, 2, 3]}


# Timers


def test_silent_member_is_fenced_after_its_session(machine: ConsumerMachine) -> None:
    two_members(machine)
    machine.pass_time(44.9)
    machine.beat("a", 3)
    machine.pass_time(0.2)
    assert list(machine.group.members) == ["a"]
    assert machine.beat("b", 3).error_code == 25
    assert machine.assignment(machine.beat("a", 3)) == {"t": [0, 1, 2, 3]}


def test_refused_heartbeat_does_not_restart_the_session(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.pass_time(40)
    assert machine.beat("a", 7).error_code == 110
    machine.pass_time(5.1)
    assert machine.group.members == {}


def test_member_that_keeps_partitions_is_fenced(machine: ConsumerMachine) -> None:
    machine.join("a", rebalance_timeout_ms=10_000)
    machine.join("b")
    machine.beat("a", 2)
    machine.pass_time(9.9)
    assert machine.beat("a", 2).error_code == 0
    machine.pass_time(0.2)
    assert machine.beat("a", 2).error_code == 25
    rejoined = machine.join("a")
    assert (rejoined.error_code, machine.assignment(rejoined)) == (0, {"t": [0, 1]})
    assert machine.assignment(machine.beat("b", 3)) == {"t": [2, 3]}


def test_rebalance_timeout_ends_when_partitions_are_given_up(machine: ConsumerMachine) -> None:
    machine.join("a", rebalance_timeout_ms=10_000)
    machine.join("b")
    machine.beat("a", 2)
    machine.beat("a", 2, {"t": [0, 1]})
    machine.pass_time(20)
    assert machine.beat("a", 3).error_code == 0


# Static members


def test_static_member_gets_its_partitions_back(machine: ConsumerMachine) -> None:
    machine.join("a", instance_id="i")
    machine.join("b")
    machine.beat("a", 2, instance_id="i")
    machine.beat("a", 2, {"t": [0, 1]}, instance_id="i")
    assert machine.beat("a", -2, instance_id="i").member_epoch == -2
    assert machine.assignment(machine.beat("b", 3)) == {"t": [2, 3]}
    machine.batches.clear()
    back = machine.join("a2", instance_id="i")
    assert (back.member_epoch, machine.assignment(back)) == (3, {"t": [0, 1]})
    assert types(machine) == [[8, 7, 5, 5, 7, 8, 8]]
    assert machine.beat("a", 3, instance_id="i").error_code == 82


def test_static_member_is_fenced_when_it_stays_away(machine: ConsumerMachine) -> None:
    machine.join("a", instance_id="i")
    machine.beat("a", -2, instance_id="i")
    machine.pass_time(44.9)
    assert list(machine.group.members) == ["a"]
    machine.pass_time(0.2)
    assert machine.group.members == {}


def test_instance_id_of_a_live_member_is_not_released(machine: ConsumerMachine) -> None:
    machine.join("a", instance_id="i")
    assert machine.join("b", instance_id="i").error_code == 111
    assert list(machine.group.members) == ["a"]


def test_member_with_a_new_instance_id_has_no_target_yet(machine: ConsumerMachine) -> None:
    a = machine.join("a", ["t"])
    machine.beat("a", a.member_epoch, {"t": [0, 1, 2, 3]})
    b = machine.join("b", ["t"])
    again = machine.join("a", ["t"], instance_id="i")
    assert again.member_epoch == b.member_epoch
    assert machine.assignment(again) == {}
    assert machine.assignment(machine.beat("b", b.member_epoch)) == {"t": [2, 3]}
    # The next target has its partitions again.
    c = machine.join("c", ["u"])
    assert machine.assignment(machine.beat("a", again.member_epoch)) == {"t": [0, 1]}
    assert c.error_code == 0


def test_member_with_another_instance_id_gives_up_the_former(machine: ConsumerMachine) -> None:
    first = machine.join("a", ["t"], instance_id="i")
    second = machine.join("a", ["t"], instance_id="j")
    assert machine.assignment(second) == {"t": [0, 1, 2, 3]}
    for instance_id, error in (("i", 25), ("j", 0), (None, 0)):
        answer = machine.beat("a", first.member_epoch, instance_id=instance_id)
        assert answer.error_code == error
    assert machine.join("b", ["t"], instance_id="j").error_code == 111
    assert machine.join("b", ["t"], instance_id="i").error_code == 0
    machine.leave(("a", None))
    assert machine.join("c", ["t"], instance_id="j").error_code == 0


def test_replacing_static_member_waits_for_its_former_partitions(
    machine: ConsumerMachine,
) -> None:
    machine.topics.create("u", 1)
    machine.join("a", ["u"], instance_id="i")
    b = machine.join("b", ["t"])
    assert machine.assignment(b) == {"t": [0, 1, 2, 3]}
    machine.beat("a", -2, instance_id="i")
    taken = machine.join("b", ["t", "u"], instance_id="i")
    assert (taken.error_code, machine.assignment(taken)) == (0, {"u": [0]})
    assert list(machine.group.members) == ["b"]
    later = machine.beat("b", taken.member_epoch, instance_id="i")
    assert machine.assignment(later) == {"t": [0, 1, 2, 3], "u": [0]}


def test_member_in_the_place_of_another_gets_a_new_target(machine: ConsumerMachine) -> None:
    machine.join("a", ["t"], instance_id="i")
    machine.join("b", [])
    machine.beat("a", -2, instance_id="i")
    taken = machine.join("b", [], instance_id="i")
    assert (taken.error_code, machine.assignment(taken)) == (0, {})
    assert machine.group.targets["b"] == {}


def test_static_return_with_other_topics_rebalances(machine: ConsumerMachine) -> None:
    machine.topics.create("u", 1)
    machine.join("a", instance_id="i")
    machine.beat("a", -2, instance_id="i")
    back = machine.join("a2", ["u"], instance_id="i")
    assert (back.member_epoch, machine.assignment(back)) == (3, {"u": [0]})


def test_leave_group_removes_static_member_by_instance(machine: ConsumerMachine) -> None:
    machine.join("a", instance_id="i")
    assert machine.leave(("", "x"), ("b", "i"), ("", "i")) == [25, 82, 0]
    assert machine.group.members == {}


# Size


def test_full_group_accepts_only_its_members() -> None:
    machine = ConsumerMachine(consumer_max_size=1)
    machine.topics.create("t", 1)
    machine.join("a")
    refused = machine.join("b")
    assert refused.error_code == 81
    assert refused.error_message == (
        "The consumer group has reached its maximum capacity of 1 members."
    )
    assert machine.join("a").error_code == 0


def test_full_group_accepts_a_static_member_that_returns() -> None:
    machine = ConsumerMachine(consumer_max_size=1)
    machine.topics.create("t", 1)
    machine.join("a", instance_id="i")
    assert machine.beat("a", -2, instance_id="i").error_code == 0
    assert machine.join("b", instance_id="j").error_code == 81
    assert machine.join("b", instance_id="i").error_code == 0
    assert list(machine.group.members) == ["b"]


# Patterns


def pattern(machine: ConsumerMachine, member_id: str, regex: str) -> None:
    machine.join(member_id, None, subscribed_topic_regex=regex)


def test_pattern_is_resolved_after_the_first_response(machine: ConsumerMachine) -> None:
    response = machine.join("a", None, subscribed_topic_regex="t.*")
    assert (response.member_epoch, machine.assignment(response)) == (1, {})
    machine.pass_time(0.01)
    assert types(machine)[-1] == [16, 3]
    response = machine.beat("a", 1)
    assert (response.member_epoch, machine.assignment(response)) == (2, {"t": [0, 1, 2, 3]})


def test_pattern_matches_whole_names(machine: ConsumerMachine) -> None:
    machine.topics.create("tt", 1)
    pattern(machine, "a", "^t")
    machine.pass_time(0.01)
    assert machine.group.topics_of(machine.group.members["a"]) == {"t"}


def test_names_and_pattern_together_are_their_union(machine: ConsumerMachine) -> None:
    machine.topics.create("u", 1)
    machine.join("a", ["u"], subscribed_topic_regex="t")
    machine.pass_time(0.01)
    response = machine.beat("a", 2)
    assert machine.assignment(response) == {"t": [0, 1, 2, 3], "u": [0]}


def test_new_topic_is_found_ten_seconds_after_last_resolution(machine: ConsumerMachine) -> None:
    pattern(machine, "a", ".*")
    machine.pass_time(0.01)
    machine.beat("a", 1)
    machine.topics.create("u", 1)
    machine.pass_time(9)
    machine.beat("a", 2)
    machine.pass_time(0.01)
    assert machine.group.subscribed_topics == {"t"}
    machine.pass_time(1)
    machine.beat("a", 2)
    machine.pass_time(0.01)
    assert machine.group.subscribed_topics == {"t", "u"}


def test_patterns_are_resolved_again_after_ten_minutes(machine: ConsumerMachine) -> None:
    pattern(machine, "a", "t")
    machine.pass_time(0.01)
    machine.batches.clear()
    for _ in range(30):
        machine.pass_time(20)
        machine.beat("a", machine.group.members["a"].epoch)
    assert [16] not in types(machine)
    machine.pass_time(1)
    machine.beat("a", 2)
    machine.pass_time(0.01)
    assert types(machine)[-1] == [16]


def test_pattern_finds_only_topics_that_the_client_may_see(machine: ConsumerMachine) -> None:
    machine.topics.create("secret", 1)
    machine.can_describe = lambda name: name != "secret"
    pattern(machine, "a", ".*")
    machine.pass_time(0.01)
    assert machine.group.subscribed_topics == {"t"}


def test_known_pattern_needs_no_resolution_for_another_member(machine: ConsumerMachine) -> None:
    pattern(machine, "a", "t")
    machine.pass_time(0.01)
    machine.beat("a", 1)
    machine.batches.clear()
    pattern(machine, "b", "t")
    machine.pass_time(0.01)
    assert types(machine) == [[5, 3, 7, 7, 6, 8]]


def test_unused_pattern_is_deleted(machine: ConsumerMachine) -> None:
    pattern(machine, "a", "t")
    pattern(machine, "b", "t")
    machine.pass_time(0.01)
    machine.beat("a", -1)
    assert list(machine.group.regexes) == ["t"]
    machine.beat("b", -1)
    assert machine.group.regexes == {}
    assert types(machine)[-1] == [8, 7, 5, 16, 3, 6]
    assert machine.group.assignment_epoch == machine.group.epoch, "an empty group has its target"


def test_invalid_pattern_changes_nothing(machine: ConsumerMachine) -> None:
    machine.join("a", instance_id="i")
    machine.beat("a", -2, instance_id="i")
    machine.batches.clear()
    refused = machine.join("b", None, instance_id="i", subscribed_topic_regex="(")
    assert refused.error_code == 128
    assert machine.batches == []
    assert list(machine.group.members) == ["a"]


# Loading


def loaded(machine: ConsumerMachine) -> AnyGroup:
    """Return the group that another coordinator loads from the records."""
    records = [(record.key, record.value) for record in machine.appended]
    env = GroupEnvironment(GroupLimits(), random.Random(1), topics=machine.topics)
    return load_groups(records, env, machine.now)["g"]


def same(one: AnyGroup, other: AnyGroup) -> bool:
    assert isinstance(one, ConsumerGroup)
    assert isinstance(other, ConsumerGroup)
    return (
        one.epoch,
        one.metadata_hash,
        one.assignment_epoch,
        one.assigned_at_ms,
        one.members,
        one.targets,
        one.regexes,
    ) == (
        other.epoch,
        other.metadata_hash,
        other.assignment_epoch,
        other.assigned_at_ms,
        other.members,
        other.targets,
        other.regexes,
    )


def test_loaded_group_equals_the_stored_one(machine: ConsumerMachine) -> None:
    two_members(machine)
    pattern(machine, "c", "t")
    machine.pass_time(0.01)
    machine.beat("b", 3)
    machine.beat("a", -1)
    assert same(loaded(machine), machine.group)


def test_records_load_in_any_order_of_their_keys(machine: ConsumerMachine) -> None:
    two_members(machine)
    records = machine.appended
    last = {record.key: at for at, record in enumerate(records)}
    # As after compaction, with the members' assignments first.
    kept = sorted(last.values(), key=lambda at: -record_type(records[at]))
    machine.batches = [[records[at] for at in kept]]
    assert same(loaded(machine), machine.group)


def test_tombstones_of_unknown_members_are_ignored(machine: ConsumerMachine) -> None:
    two_members(machine)
    machine.beat("b", -1)
    records = machine.appended
    deleted = [each for each in records if each.value is None]
    machine.batches = [deleted, [each for each in records if not each.key.endswith(b"b")]]
    group = loaded(machine)
    assert isinstance(group, ConsumerGroup)
    assert list(group.members) == ["a"]


def test_loaded_members_have_full_sessions(machine: ConsumerMachine) -> None:
    machine.join("a", rebalance_timeout_ms=10_000)
    machine.join("b")
    machine.beat("a", 2)
    group = loaded(machine)
    assert isinstance(group, ConsumerGroup)
    assert group.is_scheduled("session", "a")
    assert group.is_scheduled("session", "b")
    assert group.is_scheduled("rebalance", "a")
    assert not group.is_scheduled("rebalance", "b")


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [
        ("life", "gone"),
        ("jg", "consumer Empty"),
        ("cg", "consumer Empty"),
        ("mg", "classic Empty"),
        ("mig", "consumer Empty"),
        ("migs", "classic Stable"),
        ("mig2", "consumer Empty"),
    ],
)
def test_lives_of_kafka_load_to_their_last_state(group_id: str, expected: str) -> None:
    env = GroupEnvironment(GroupLimits(), random.Random(1))
    records = [(record.key, record.value) for step in lives()[group_id] for record in step.records]
    group = load_groups(records, env, 0.0).get(group_id)
    assert (f"{group.type_name} {group.state.value}" if group else "gone") == expected
    if group_id == "migs":
        assert isinstance(group, ClassicGroup)
        assert list(group.static_members) == ["st-1"]


def test_offsets_outlive_a_change_of_protocol() -> None:
    env = GroupEnvironment(GroupLimits(), random.Random(1))
    records = [(record.key, record.value) for step in lives()["mg"] for record in step.records]
    group = load_groups(records, env, 0.0)["mg"]
    assert {key: each.offset for key, each in group.offsets.items()} == {
        ("ka", 0): 0,
        ("ka", 1): 0,
        ("ka", 2): 40,
        ("ka", 3): 0,
    }


def test_member_in_unknown_state_must_give_up_everything(machine: ConsumerMachine) -> None:
    machine.join("a")
    group = machine.group
    group.members.put(replace(group.members["a"], state=AssignmentState(9)))
    refused = machine.beat("a", 2)
    assert (refused.error_code, machine.beat("a", 2, {"t": [0]}).error_code) == (110, 110)
    response = machine.beat("a", 2, {})
    assert (response.error_code, response.member_epoch) == (0, 2)
    assert group.members["a"].state is AssignmentState.STABLE
