"""Admin clients on the in-process cluster: removal of members and records, and waits for topics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, TopicPartition
from kohort.admin import MemberToRemove
from kohort.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kohort.testing import Cluster
from tests.support.awaited import EACH_ADMIN

_NUMBERS = itertools.count()
ORDERS = tuple(TopicPartition("orders", number) for number in range(3))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 3}, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "retry_backoff_ms": 10,
        "retry_backoff_max_ms": 10,
    }


@EACH_ADMIN
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.anyio
async def test_members_are_removed_by_both_ids(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], protocol: Any
) -> None:
    group = f"group-{next(_NUMBERS)}"

    quick: dict[str, Any] = {"heartbeat_interval_ms": 50} if protocol == "classic" else {}

    def member(instance: str | None) -> AsyncKafkaConsumer[bytes, bytes]:
        return AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            group_protocol=protocol,
            group_instance_id=instance,
            **quick,
        )

    async with member("one"), member(None), admin_class(**options) as admin:
        await cluster.wait_until_async(lambda: len(cluster.group(group).members) == 2, 60.0)
        before = (await admin.describe_groups(group))[group]
        [dynamic] = [each.member_id for each in before.members if not each.group_instance_id]
        static, unknown = MemberToRemove(group_instance_id="one"), MemberToRemove("nobody")
        found = await admin.remove_group_members(group, [static, dynamic, "nobody"])
        assert dict(found) == {static: None, MemberToRemove(dynamic): None}
        assert isinstance(found.errors[unknown], UnknownMemberIdError)
        assert "member 'nobody' was not removed" in str(found.errors[unknown])
        # Both consumers join again: as new members, or in a new epoch.
        after = (await admin.describe_groups(group))[group]
        if protocol == "classic":
            assert not {each[0] for each in before.members} & {each[0] for each in after.members}
        else:
            assert after.epoch > before.epoch


@EACH_ADMIN
@pytest.mark.anyio
async def test_removal_is_repeated_and_names_a_missing_right(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    group = f"group-{next(_NUMBERS)}"
    async with admin_class(**options) as admin:
        with cluster.fail("LeaveGroup", ErrorCode.NOT_COORDINATOR, times=2) as fault:
            found = await admin.remove_group_members(group, ["nobody"])
        assert fault.hits == 2
        assert [type(error) for error in found.errors.values()] == [UnknownMemberIdError]
        cluster.fail("LeaveGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        [error] = (await admin.remove_group_members(group, ["nobody"])).errors.values()
        assert isinstance(error, GroupAuthorizationFailedError)
        assert (error.group_id, error.operation) == (group, "READ")
        cluster.fail("FindCoordinator", ErrorCode.INVALID_GROUP_ID)
        [error] = (await admin.remove_group_members(group, ["nobody"])).errors.values()
        assert error.code == ErrorCode.INVALID_GROUP_ID
        assert error.__cause__ is not error


@EACH_ADMIN
@pytest.mark.anyio
async def test_records_before_an_offset_are_deleted(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = f"topic-{next(_NUMBERS)}"
    cluster.create_topic(topic, 3)
    one, two, three = (TopicPartition(topic, number) for number in range(3))
    for tp in (one, two, three):
        cluster.produce(topic, ["x"] * 5, partition=tp.partition)
    absent, outside = TopicPartition("absent", 0), TopicPartition(topic, 9)
    async with admin_class(**options) as admin:
        cluster.fail("DeleteRecords", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        found = await admin.delete_records({one: 2, two: -1, three: 6, absent: 0, outside: 0})
        assert dict(found) == {one: 2, two: 5}
        assert isinstance(found.errors[three], OffsetOutOfRangeError)
        for unknown in (absent, outside):
            assert isinstance(found.errors[unknown], UnknownTopicOrPartitionError)
        starts = await admin.list_partition_offsets(dict.fromkeys((one, two, three), -2))
        assert [starts[tp].offset for tp in (one, two, three)] == [2, 5, 0]
        cluster.fail("DeleteRecords", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        error = (await admin.delete_records({one: 3})).errors[one]
        assert isinstance(error, TopicAuthorizationFailedError)
        assert (list(error.topics), error.operation) == ([topic], "DELETE")


@EACH_ADMIN
@pytest.mark.anyio
async def test_wait_ends_when_the_topics_have_leaders(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    topic, looks = f"topic-{next(_NUMBERS)}", itertools.count(1)

    async def appear_late(call: Any) -> Any:
        response = await call.proceed()
        for each in response.topics or ():
            if each.name == topic and next(looks) < 20:
                each.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return response

    async with admin_class(**options) as admin:
        (await admin.create_topics({topic: 2})).raise_errors()
        with cluster.on("Metadata", appear_late):
            await admin.wait_for_topics([topic, "orders"])
        assert next(looks) > 20
        with pytest.raises(KafkaTimeoutError, match="topic 'absent' does not exist"):
            await admin.wait_for_topics(["orders", "absent"], timeout_ms=200)


@EACH_ADMIN
@pytest.mark.anyio
async def test_arguments_of_removals_are_checked(admin_class: Any, options: dict[str, Any]) -> None:
    async with admin_class(**options) as admin:
        with pytest.raises(TypeError, match="expected a list of members"):
            await admin.remove_group_members("g", "one")
        with pytest.raises(ValueError, match="needs a member_id or a group_instance_id"):
            await admin.remove_group_members("g", [MemberToRemove()])
        with pytest.raises(TypeError, match="expected a mapping of TopicPartition"):
            await admin.delete_records([ORDERS[0]])
        with pytest.raises(ValueError, match="must be at least -1"):
            await admin.delete_records({ORDERS[0]: -2})
