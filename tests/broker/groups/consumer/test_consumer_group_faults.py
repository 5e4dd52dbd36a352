"""Consumer groups with odd requests, odd records and internal errors."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

import anyio
import pytest

from kohort.broker.groups import (
    ClassicGroup,
    ConsumerGroup,
    ConsumerMember,
    OffsetToCommit,
    _coordinator,
    _expiration,
    _offsets,
    _transactional,
    load_groups,
)
from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.assignors import MemberSpec, assign
from kohort.broker.groups.classic import _requests as classic_requests
from kohort.broker.groups.classic._records import append_empty_group
from kohort.broker.groups.consumer import _heartbeat, _requests
from kohort.broker.groups.consumer._classic_members import sync_classic
from kohort.broker.groups.consumer._embedded_protocol import read_assignment, read_subscription
from kohort.broker.groups.consumer._fencing import remove_members
from kohort.broker.groups.consumer._member import AssignmentState
from kohort.broker.groups.consumer._records import append_epoch
from kohort.errors import ErrorCode
from kohort.protocol import Message, encode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.broker.groups.consumer.consumer_machine import ConsumerMachine
from tests.broker.groups.coordinator_driver import CoordinatorDriver
from tests.support.virtual import run_virtual

OFFSET = OffsetToCommit("ka", b"", 0, 1, -1, "")


@pytest.fixture
def machine() -> ConsumerMachine:
    made = ConsumerMachine()
    made.topics.create("t", 4)
    return made


# Several entries of one topic


def test_partitions_owned_in_two_entries_are_not_revoked(machine: ConsumerMachine) -> None:
    machine.join("a")
    machine.join("b")
    machine.beat("a", 2)
    cls = ConsumerGroupHeartbeatRequest
    entries = [
        cls.TopicPartitions(topic_id=machine.topic_id("t"), partitions=each)
        for each in ([2, 3], [0, 1])
    ]
    machine.send(cls(group_id="g", member_id="a", member_epoch=2, topic_partitions=entries))
    assert machine.group.members["a"].state is AssignmentState.UNREVOKED_PARTITIONS


def test_subscription_unites_the_entries_of_a_topic(machine: ConsumerMachine) -> None:
    cls = ConsumerProtocolSubscription
    entries = [cls.TopicPartition(topic="t", partitions=[number]) for number in (2, 1)]
    data = b"\0\1" + encode(cls(topics=["t"], owned_partitions=entries), 1)
    owned = read_subscription(data, machine.topics).owned
    assert owned == {machine.topic_id("t"): {1, 2}}


def test_assignment_unites_the_entries_of_a_topic(machine: ConsumerMachine) -> None:
    cls = ConsumerProtocolAssignment
    entries = [cls.TopicPartition(topic="t", partitions=[number]) for number in (2, 1)]
    data = b"\0\1" + encode(cls(assigned_partitions=entries), 1)
    assert read_assignment(data, machine.topics).partitions == {machine.topic_id("t"): {1, 2}}


# Partitions that do not exist


def test_assignment_omits_partitions_that_do_not_exist(machine: ConsumerMachine) -> None:
    cls = ConsumerProtocolAssignment
    entries = [cls.TopicPartition(topic="t", partitions=[-100, -1, 0, 3, 4])]
    data = b"\0\1" + encode(cls(assigned_partitions=entries), 1)
    assert read_assignment(data, machine.topics).partitions == {machine.topic_id("t"): {0, 3}}


@pytest.mark.parametrize("has_other_member", [False, True])
def test_assignor_replaces_partitions_that_do_not_exist(has_other_member: bool) -> None:
    topic, other = bytes(16), bytes([1]) * 16
    members = {"a": MemberSpec(None, frozenset({topic}), {topic: frozenset({-100, -1, 0, 9})})}
    if has_other_member:
        members["b"] = MemberSpec(None, frozenset({other}), {})
    found = assign("uniform", members, {topic: 3, other: 1})
    assert found["a"] == {topic: {0, 1, 2}}


# Records that this coordinator does not write


def load(machine: ConsumerMachine, *records: tuple[Message, Message]) -> ConsumerGroup:
    """Return the group of these keys and values."""
    prefix = struct.Struct(">h")
    raw = [
        (prefix.pack(key.api_key) + encode(key, 0), prefix.pack(0) + encode(value, 0))
        for key, value in records
    ]
    group = machine.groups["g"] = load_groups(raw, machine.env, machine.now)["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def test_loading_uses_the_member_epoch_when_epochs_are_missing(machine: ConsumerMachine) -> None:
    cls = ConsumerGroupCurrentMemberAssignmentValue
    entry = cls.TopicPartitions(
        topic_id=machine.topic_id("t"), partitions=[0, 1], assignment_epochs=[2]
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    group = load(machine, (key, cls(member_epoch=3, assigned_partitions=[entry])))
    assert group.members["a"].assigned == {machine.topic_id("t"): {0: 3, 1: 3}}


def test_stored_pattern_that_is_refused_matches_nothing(machine: ConsumerMachine) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    value = ConsumerGroupMemberMetadataValue(
        subscribed_topic_regex="(", classic_member_metadata=None
    )
    group = load(machine, (key, value))
    machine.join("b", None, subscribed_topic_regex="t")
    machine.pass_time(0.01)
    assert group.topics_of(group.members["a"]) == set()
    assert group.topics_of(group.members["b"]) == {"t"}


def test_sync_is_refused_when_stored_member_has_no_protocols(machine: ConsumerMachine) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    cls = ConsumerGroupMemberMetadataValue
    classic = cls.ClassicMemberMetadata(session_timeout_ms=10_000, supported_protocols=[])
    group = load(machine, (key, cls(classic_member_metadata=classic)))
    request = SyncGroupRequest(group_id="g", member_id="a", generation_id=0, protocol_name="range")
    with pytest.raises(GroupRequestError) as refused:
        sync_classic(group, request, machine.now)
    assert refused.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_group_stays_when_stored_members_share_no_protocol(machine: ConsumerMachine) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="a")
    cls = ConsumerGroupMemberMetadataValue
    classic = cls.ClassicMemberMetadata(session_timeout_ms=10_000, supported_protocols=[])
    load(machine, (key, cls(classic_member_metadata=classic)))
    machine.join("b")
    assert machine.beat("b", -1).error_code == 0
    assert list(machine.group.members) == ["a"]


# Internal errors


def test_failed_request_appends_nothing(
    machine: ConsumerMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    machine.join("a")
    with monkeypatch.context() as patched:
        patched.setattr(_heartbeat, "update_target", fail)
        with pytest.raises(ZeroDivisionError):
            machine.join("b")
    assert machine.env.effects == []


def test_error_in_a_timer_is_logged_when_other_groups_go_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        if group.group_id == "g":
            append_epoch(group)
            raise ZeroDivisionError
        remove_members(group, members)

    async def main() -> None:
        driver = CoordinatorDriver()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.coordinator.run)
            driver.join_consumer("n")
            driver.group_id = "other"
            driver.join_consumer("n")
            driver.batches.clear()
            await anyio.sleep(46)
            assert driver.state == "consumer Empty"
            assert len(driver.batches) == 1, "records of the group that failed"
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(_requests, "remove_members", fail)
    run_virtual(main)
    (record,) = caplog.records
    assert record.getMessage() == "[g] the timer session of 'n' failed"


@pytest.mark.parametrize("request_name", ["join", "sync", "leave", "commit"])
def test_failed_classic_request_appends_nothing(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        driver = CoordinatorDriver()
        coordinator = driver.coordinator
        group = coordinator.groups["g"] = ClassicGroup("g", driver.env)

        def fail(*args: object) -> None:
            append_empty_group(group, 0)
            raise ZeroDivisionError

        module = _coordinator if request_name in ("join", "commit") else classic_requests
        monkeypatch.setattr(module, request_name, fail)
        with pytest.raises(ZeroDivisionError):
            if request_name == "join":
                await driver.join("", [("range", b"")])
            elif request_name == "sync":
                await driver.sync("a", 1)
            elif request_name == "leave":
                driver.leave("a")
            else:
                coordinator.commit(OffsetCommitRequest(group_id="g"), [], 9)
        assert driver.env.effects == []

    run_virtual(main)


SLOW = "|".join(f"[ab]*a[ab]{{{count}}}" for count in range(100, 130))
"""Pattern whose resolution takes several slices of time."""


def machine_with_long_names() -> ConsumerMachine:
    machine, rng = ConsumerMachine(), random.Random(1)
    for number in range(10):
        name = "".join(rng.choice("ab") for _ in range(120))
        machine.topics.create(name, 1, number.to_bytes(16, "big"))
    machine.topics.create("t", 1)
    return machine


def slices_until_resolved(machine: ConsumerMachine) -> int:
    """Return the number of slices, which are 1 ms apart."""
    count = 0
    while machine.group.is_scheduled("regex"):
        assert count < 200
        machine.pass_time(0.001)
        count += 1
    return count


def test_long_resolution_of_a_pattern_lets_other_work_go_on() -> None:
    machine, pattern = machine_with_long_names(), SLOW
    machine.join("a", (), subscribed_topic_regex=pattern)
    machine.pass_time(0.002)
    assert machine.group.regexes == {}
    assert machine.group.is_scheduled("regex")
    assert machine.join("b", ("t",)).error_code == 0
    machine.pass_time(1)
    assert machine.group.regexes[pattern].topics
    assert not machine.group.is_scheduled("regex")


def test_a_slow_pattern_is_resolved_among_many_others() -> None:
    machine = machine_with_long_names()
    for number in range(40):
        machine.join(f"m{number}", (), subscribed_topic_regex=f"t|x{number}")
    machine.pass_time(1)
    machine.join("slow", (), subscribed_topic_regex=SLOW)
    machine.pass_time(15)
    machine.beat("slow", machine.group.members["slow"].epoch)
    slices_until_resolved(machine)
    assert machine.group.regexes[SLOW].topics


def test_patterns_of_a_group_share_the_work_of_a_slice() -> None:
    counts = []
    for patterns in (1, 2):
        machine = machine_with_long_names()
        for number in range(patterns):
            machine.join(f"m{number}", (), subscribed_topic_regex=SLOW + f"|x{number}")
        counts.append(slices_until_resolved(machine))
    assert counts[1] > 1.5 * counts[0]


def test_compiled_patterns_are_kept_while_they_are_subscribed() -> None:
    machine = ConsumerMachine()
    machine.join("a", (), subscribed_topic_regex="t")
    machine.join("b", (), subscribed_topic_regex="u")
    machine.pass_time(1)
    assert set(machine.group.compiled_regexes) == {"t", "u"}
    assert machine.beat("b", -1).error_code == 0
    assert set(machine.group.compiled_regexes) == {"t"}


def test_hashes_of_deleted_topics_are_forgotten(machine: ConsumerMachine) -> None:
    machine.topics.create("u", 1)
    epoch = machine.join("a", ("t", "u")).member_epoch
    machine.topics.delete("t")
    assert machine.beat("a", epoch).error_code == 0
    assert list(machine.env.topic_hashes) == ["u"]


def fail_at(calls: int) -> Callable[..., bytes]:
    """Return a function that raises at this call, and returns bytes before."""
    count = 0

    def fail(*_: object) -> bytes:
        nonlocal count
        count += 1
        return bytes([1 // (calls - count)])

    return fail


@pytest.mark.parametrize(
    "what", ["delete group", "delete offsets", "delete topic", "expire", "transaction"]
)
def test_failed_change_of_offsets_changes_nothing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        driver = CoordinatorDriver(offsets_retention_minutes=1)
        coordinator = driver.coordinator
        offsets = [OFFSET._replace(partition=number) for number in range(3)]
        coordinator.commit(OffsetCommitRequest(group_id="g"), offsets, 9)
        partitions = list(coordinator.groups["g"].offsets)
        batches = list(driver.batches)
        for module in (_offsets, _transactional):
            monkeypatch.setattr(module, "offset_commit_key", fail_at(2))
        if what == "expire":
            await anyio.sleep(700)
            coordinator.heartbeat(HeartbeatRequest(group_id="g"))
        else:
            with pytest.raises(ZeroDivisionError):
                if what == "delete group":
                    coordinator.delete_group("g")
                elif what == "delete offsets":
                    coordinator.delete_offsets("g", partitions)
                elif what == "delete topic":
                    coordinator.delete_topic_offsets("ka")
                else:
                    request = TxnOffsetCommitRequest(group_id="g", producer_id=1)
                    coordinator.commit_in_transaction(request, offsets, 5)
        assert driver.env.effects == []
        assert driver.batches == batches
        assert list(coordinator.groups["g"].offsets) == partitions
        assert coordinator.pending.pending_partitions("g") == set()

    run_virtual(main)


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
def test_failed_expiration_of_a_group_keeps_its_offsets(
    kind: type[ClassicGroup | ConsumerGroup], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        driver = CoordinatorDriver(offsets_retention_minutes=1)
        coordinator = driver.coordinator
        coordinator.groups["g"] = kind("g", driver.env)
        coordinator.commit(OffsetCommitRequest(group_id="g"), [OFFSET], 9)
        batches = list(driver.batches)
        for name in ("delete_group_records", "group_metadata_key"):
            monkeypatch.setattr(_expiration, name, fail_at(1))
        await anyio.sleep(700)
        coordinator.heartbeat(HeartbeatRequest(group_id="g"))
        assert driver.batches == batches
        assert list(coordinator.groups["g"].offsets) == [("ka", 0)]

    run_virtual(main)
