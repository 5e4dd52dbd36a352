"""Admin clients on the in-process cluster: groups, their offsets, and errors by resource."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.admin import GroupDescription, OffsetSpec
from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InvalidOptionError,
    KafkaTimeoutError,
    NonEmptyGroupError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kohort.testing import Cluster, ProducerRecord
from tests.support.awaited import EACH_ADMIN

_NUMBERS = itertools.count()
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"orders": 3, "flights": 1}) as running:
        running.produce("orders", ["x"] * 9)
        yield running


@pytest.fixture
def group() -> str:
    return f"group-{next(_NUMBERS)}"


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "retry_backoff_ms": 10}


@asynccontextmanager
async def member(
    cluster: Cluster, group: str, protocol: Any, **more: Any
) -> AsyncIterator[AsyncKafkaConsumer]:
    """A member that has read and committed all records."""
    consumer = AsyncKafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **more,
    )
    async with consumer:
        for _ in range(9):
            await anext(consumer)
        await consumer.commit()
        yield consumer


async def leave_empty(cluster: Cluster, group: str, protocol: str = "classic") -> None:
    """Let a member commit and leave."""
    async with member(cluster, group, protocol):
        pass


ORDERS = tuple(TopicPartition("orders", number) for number in range(3))


@EACH_ADMIN
@pytest.mark.anyio
async def test_groups_are_listed_with_type_and_state(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    await leave_empty(cluster, f"{group}-c", "consumer")
    one = member(cluster, f"{group}-a", "classic")
    async with one, member(cluster, f"{group}-b", "consumer"):
        async with admin_class(**options) as admin:

            async def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
                found = (await admin.list_groups(**filters)).raise_errors()
                return [each[:4] for each in found if each.group_id.startswith(group)]

            a = (f"{group}-a", "classic", "Stable", "consumer")
            b = (f"{group}-b", "consumer", "Stable", "consumer")
            c = (f"{group}-c", "consumer", "Empty", "consumer")
            assert await listed() == [a, b, c]
            assert await listed(types_filter=["Consumer"]) == [b, c]
            assert await listed(types_filter=["share"]) == []
            assert await listed(states_filter=["empty"]) == [c]
            assert await listed(states_filter=["Stable"], types_filter=["classic"]) == [a]
            found = {each.group_id: each.coordinator for each in await admin.list_groups()}
            descriptions = await admin.describe_groups([a[0], b[0]])
            assert found[a[0]] == descriptions[a[0]].coordinator
            assert found[b[0]] == descriptions[b[0]].coordinator


@EACH_ADMIN
@pytest.mark.anyio
async def test_brokers_that_fail_are_errors_beside_the_groups(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    async with member(cluster, group, "classic"):
        async with admin_class(**options) as admin:
            [node] = [g.coordinator for g in await admin.list_groups() if g.group_id == group]
            with cluster.fail(
                "ListGroups", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None, node=node
            ):
                found = await admin.list_groups()
            assert group not in [each.group_id for each in found]
            assert set(found.errors) == {node}
            with pytest.raises(BrokerResponseError, match="CLUSTER_AUTHORIZATION_FAILED"):
                found.raise_errors()


@EACH_ADMIN
@PROTOCOLS
@pytest.mark.anyio
async def test_description_has_members_and_their_partitions(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str, protocol: str
) -> None:
    async with member(cluster, group, protocol, client_id="billing-1", group_instance_id="one"):
        async with admin_class(**options) as admin:
            found = await admin.describe_groups([group, "absent"])
        described: GroupDescription = found[group]
        assert (described.type, described.state) == (protocol, "Stable")
        assert described.protocol_type == "consumer"
        assert described.assignor == ("range" if protocol == "classic" else "uniform")
        [one] = described.members
        assert one.partitions == ORDERS
        assert one.topics == ("orders",)
        assert (one.client_id, one.group_instance_id) == ("billing-1", "one")
        assert one.host == "127.0.0.1"
        assert described.owners() == dict.fromkeys(ORDERS, one)
        if protocol == "consumer":
            assert one.target == ORDERS
            assert described.epoch == described.assignment_epoch == one.epoch
        else:
            assert one.target is None and described.epoch is None
        assert list(found) == [group]
        assert list(found.errors) == ["absent"]
        with pytest.raises(GroupIdNotFoundError, match="'absent'"):
            found["absent"]
        with pytest.raises(GroupIdNotFoundError):
            found.raise_errors()


@EACH_ADMIN
@pytest.mark.anyio
async def test_requests_follow_a_coordinator_that_moves(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    await leave_empty(cluster, group, "classic")
    async with admin_class(**options) as admin:
        for api in ("ConsumerGroupDescribe", "OffsetFetch", "OffsetCommit", "OffsetDelete"):
            cluster.fail(api, ErrorCode.NOT_COORDINATOR, times=2)
        cluster.fail("DeleteGroups", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
        assert (await admin.describe_groups(group))[group].state == "Empty"
        assert len((await admin.list_group_offsets(group))[group]) == 3
        tp = ORDERS[0]
        assert dict(await admin.alter_group_offsets(group, {tp: 1})) == {tp: None}
        assert dict(await admin.delete_group_offsets(group, [tp])) == {tp: None}
        assert dict(await admin.delete_groups(group)) == {group: None}


@EACH_ADMIN
@PROTOCOLS
@pytest.mark.anyio
async def test_offsets_are_listed_altered_and_deleted(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str, protocol: str
) -> None:
    await leave_empty(cluster, group, protocol)
    async with admin_class(**options) as admin:
        committed = await admin.list_group_offsets({group: None, "absent": None})
        assert {tp: at.offset for tp, at in committed[group].items()} == dict.fromkeys(ORDERS, 3)
        assert dict(committed["absent"]) == {}
        changes = {ORDERS[0]: OffsetAndMetadata(1, "by hand"), TopicPartition("absent", 0): 5}
        altered = await admin.alter_group_offsets(group, changes)
        assert list(altered) == [ORDERS[0]]
        [error] = altered.errors.values()
        assert isinstance(error, UnknownTopicOrPartitionError)
        found = (await admin.list_group_offsets({group: ORDERS[:1]}))[group]
        assert [at[:2] for at in found.values()] == [(1, "by hand")]
        assert list(await admin.delete_group_offsets(group, ORDERS[:2])) == list(ORDERS[:2])
        assert list((await admin.list_group_offsets(group))[group]) == [ORDERS[2]]
        deleted = await admin.delete_groups([group, "absent"])
        assert list(deleted) == [group]
        assert isinstance(deleted.errors["absent"], GroupIdNotFoundError)


@EACH_ADMIN
@PROTOCOLS
@pytest.mark.anyio
async def test_offsets_of_a_group_with_members_stay(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str, protocol: str
) -> None:
    async with member(cluster, group, protocol):
        async with admin_class(**options) as admin:
            altered = await admin.alter_group_offsets(group, {ORDERS[0]: 0})
            assert isinstance(altered.errors[ORDERS[0]], UnknownMemberIdError)
            removed = await admin.delete_group_offsets(group, ORDERS[:1])
            assert "GROUP_SUBSCRIBED_TO_TOPIC" in str(removed.errors[ORDERS[0]])
            deleted = await admin.delete_groups(group)
            assert isinstance(deleted.errors[group], NonEmptyGroupError)
            assert len((await admin.list_group_offsets(group))[group]) == 3


@EACH_ADMIN
@pytest.mark.anyio
async def test_offsets_of_logs_are_found_by_spec(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    topic = f"times-{next(_NUMBERS)}"
    cluster.create_topic(topic, 1)
    cluster.produce(
        topic, [ProducerRecord(value="x", timestamp=at) for at in (1_000, 9_000, 5_000)]
    )
    tp = TopicPartition(topic, 0)
    async with admin_class(**options) as admin:

        async def found(spec: int) -> Any:
            return (await admin.list_partition_offsets({tp: spec}))[tp]

        assert (await found(OffsetSpec.EARLIEST))[0] == 0
        assert (await found(OffsetSpec.LATEST))[0] == 3
        assert (await found(OffsetSpec.MAX_TIMESTAMP))[:2] == (1, 9_000)
        assert (await found(OffsetSpec.EARLIEST_LOCAL))[0] == 0
        assert await found(OffsetSpec.LATEST_TIERED) is None
        assert (await found(2_000))[:2] == (1, 9_000)
        assert await found(10_000) is None
        absent = TopicPartition("absent", 0)
        results = await admin.list_partition_offsets({tp: -1, absent: -1})
        assert list(results) == [tp]
        assert isinstance(results.errors[absent], UnknownTopicOrPartitionError)


@EACH_ADMIN
@pytest.mark.anyio
async def test_missing_rights_name_group_topic_and_operation(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    await leave_empty(cluster, group, "classic")
    async with admin_class(**options) as admin:
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        for api in ("ConsumerGroupDescribe", "DeleteGroups", "OffsetFetch"):
            cluster.fail(api, denied)
        for results, operation in (
            (await admin.describe_groups(group), "DESCRIBE"),
            (await admin.delete_groups(group), "DELETE"),
            (await admin.list_group_offsets(group), "DESCRIBE"),
        ):
            error = results.errors[group]
            assert isinstance(error, GroupAuthorizationFailedError)
            assert (error.group_id, error.operation) == (group, operation)
        cluster.fail("OffsetCommit", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        error = (await admin.alter_group_offsets(group, {ORDERS[0]: 0})).errors[ORDERS[0]]
        assert isinstance(error, TopicAuthorizationFailedError)
        assert error.topics == {"orders"}


@EACH_ADMIN
@pytest.mark.anyio
async def test_call_ends_at_its_timeout_with_the_latest_error(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    await leave_empty(cluster, group, "classic")
    async with admin_class(**options) as admin:
        await admin.list_groups()
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with cluster.fail("DeleteGroups", code, times=None):
            error = (await admin.delete_groups(group, timeout_ms=200)).errors[group]
        assert isinstance(error, KafkaTimeoutError)
        assert "within 0.2 s" in str(error) and "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
        with cluster.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None):
            error = (await admin.delete_groups(group, timeout_ms=200)).errors[group]
        assert "no coordinator was found: COORDINATOR_NOT_AVAILABLE" in str(error)


@EACH_ADMIN
@pytest.mark.anyio
async def test_arguments_are_checked_before_any_request(
    admin_class: Any, cluster: Cluster, options: dict[str, Any]
) -> None:
    async with admin_class(**options) as admin:
        with pytest.raises(TypeError, match="a group id must be a str"):
            await admin.describe_groups([1])
        with pytest.raises(TypeError, match="expected a list of TopicPartition"):
            await admin.delete_group_offsets("g", ORDERS[0])
        with pytest.raises(InvalidOptionError, match="isolation_level='serializable'"):
            await admin.list_partition_offsets({}, isolation_level="serializable")
        with pytest.raises(ValueError, match="must be at least -5"):
            await admin.list_partition_offsets({ORDERS[0]: -9})
