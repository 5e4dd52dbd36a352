"""The topic ``__consumer_offsets``: written as Kafka 4.3.1 writes it, and read back."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.groups import (
    Append,
    ClassicGroup,
    CommittedOffset,
    GroupEnvironment,
    GroupLimits,
    GroupState,
    load_groups,
)
from kohort.broker.groups._loading import _restore
from kohort.broker.groups.classic._records import (
    append_empty_group,
    group_metadata_key,
    group_metadata_value,
    offset_commit_key,
    offset_commit_value,
    read_key,
    read_value,
)
from kohort.protocol.messages import GroupMetadataValue
from tests.broker.groups.machine import PROTOCOLS, Machine

SAMPLES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "consumer_offsets_samples.json").read_text()
)["samples"]
OFFSETS = [s for s in SAMPLES if s["key_type"] == 1]
GROUPS = [s for s in SAMPLES if s["key_type"] == 2]


def raw(sample: dict[str, Any], part: str) -> bytes | None:
    text = sample[f"{part}_b64"]
    return None if text is None else base64.b64decode(text)


def environment() -> GroupEnvironment:
    return GroupEnvironment(GroupLimits(), random.Random(1))


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_the_samples_hold_what_is_tested() -> None:
    assert len(OFFSETS) >= 10
    assert len(GROUPS) >= 10


@pytest.mark.parametrize("sample", OFFSETS)
def test_offset_commits_are_written_byte_for_byte(sample: dict[str, Any]) -> None:
    key = sample["key"]
    assert offset_commit_key(key["group"], key["topic"], key["partition"]) == raw(sample, "key")
    if (value := sample.get("value")) is not None:
        committed = CommittedOffset(
            offset=value["offset"],
            leader_epoch=value["leaderEpoch"],
            metadata=value["metadata"],
            commit_timestamp_ms=value["commitTimestamp"],
            topic_id=unpadded(value.get("topicId", "A" * 22)),
        )
        assert offset_commit_value(committed) == raw(sample, "value")


@pytest.mark.parametrize("sample", GROUPS)
def test_group_metadata_is_read_and_written_byte_for_byte(sample: dict[str, Any]) -> None:
    name = sample["key"]["group"]
    assert group_metadata_key(name) == raw(sample, "key")
    stored = raw(sample, "value")
    if stored is None:
        return
    key = read_key(group_metadata_key(name))
    assert key is not None
    value = read_value(key, stored)
    assert isinstance(value, GroupMetadataValue)
    group = _restore(name, environment(), value)
    assignments = {member.member_id: member.assignment for member in group.members.values()}
    assert group_metadata_value(group, assignments) == stored


def test_a_new_group_is_stored_as_kafka_stores_it() -> None:
    sample = next(s for s in GROUPS if (s.get("value") or {}).get("generation") == 0)
    env = environment()
    env.epoch_ms = sample["value"]["currentStateTimestamp"]
    append_empty_group(ClassicGroup(sample["key"]["group"], env), 0.0)
    (effect,) = env.effects
    assert isinstance(effect, Append)
    assert (effect.key, effect.value) == (raw(sample, "key"), raw(sample, "value"))


def test_all_samples_load_and_other_kinds_of_groups_are_left_out() -> None:
    records = [(raw(s, "key"), raw(s, "value")) for s in SAMPLES]
    groups = load_groups(records, environment(), 0.0)
    classic = {s["key"]["group"] for s in OFFSETS + GROUPS}
    assert {key for key, group in groups.items() if isinstance(group, ClassicGroup)} <= classic
    assert "fg-twor" in groups


def test_what_does_not_decode_is_left_out() -> None:
    records = [
        (None, b"x"),
        (b"", b""),
        (b"\0", b""),
        (b"\0\2\0\5ab", b""),
        (group_metadata_key("g"), b"\0\x09"),
        (offset_commit_key("g", "t", 0), b"\0\4\0"),
    ]
    assert load_groups(records, environment(), 0.0) == {}


def reloaded(machine: Machine) -> ClassicGroup:
    records = [(effect.key, effect.value) for effect in machine.appended]
    env = environment()
    group = load_groups(records, env, machine.now)["g"]
    assert isinstance(group, ClassicGroup)
    machine.env, machine.group = env, group
    return group


def test_members_continue_after_another_coordinator_loads_group() -> None:
    machine = Machine()
    first, second = machine.form_stable(2)
    machine.commit(first)
    generation = machine.group.generation
    group = reloaded(machine)
    assert (group.state, group.generation, group.leader) == (
        GroupState.STABLE,
        generation,
        first,
    )
    assert machine.beat(first) == machine.beat(second) == machine.commit(second) == 0
    assert group.offsets["t", 0].offset == 5
    assert machine.synced(machine.send_sync(second)).assignment == second.encode()
    assert machine.joined(machine.send_join(second)).generation_id == generation


def test_a_loaded_member_that_is_silent_expires() -> None:
    machine = Machine()
    machine.form_stable(2)
    group = reloaded(machine)
    machine.pass_time(10.1)
    assert (group.state, group.members) == (GroupState.EMPTY, {})


def test_records_are_written_when_kafka_writes_them() -> None:
    machine = Machine()
    ids = machine.form(PROTOCOLS, PROTOCOLS)
    assert machine.appended == [], "a join writes nothing"
    machine.send_sync(ids[1])
    assert machine.appended == [], "nor does a follower's sync"
    machine.send_sync(ids[0], assignments=dict.fromkeys(ids, b"x"))
    assert len(machine.appended) == 1, "the leader's does"
    machine.leave(ids[0])
    machine.send_join(ids[1])
    machine.send_sync(ids[1], assignments={ids[1]: b"x"})
    assert len(machine.appended) == 2
    machine.leave(ids[1])
    assert len(machine.appended) == 3, "and a group that becomes empty"


def test_a_static_members_return_is_written() -> None:
    machine = Machine()
    machine.send_join(instance="i")
    member = machine.group.static_members["i"]
    machine.send_sync(member, assignments={member: b"x"}, instance="i")
    machine.send_join(instance="i")
    assert len(machine.appended) == 2
    machine.send_sync(machine.group.static_members["i"], instance="i")
    group = reloaded(machine)
    assert list(group.static_members) == ["i"]
    assert machine.beat(group.static_members["i"], instance="i") == 0


def test_a_tombstone_forgets_the_group_and_the_offset() -> None:
    machine = Machine()
    machine.commit("", generation=-1)
    records = [(effect.key, effect.value) for effect in machine.appended]
    assert list(load_groups(records, environment(), 0.0)["g"].offsets) == [("t", 0)]
    records += [(offset_commit_key("g", "t", 0), None), (group_metadata_key("g"), None)]
    assert load_groups(records, environment(), 0.0) == {}
