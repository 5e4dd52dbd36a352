"""Resets of a group's offsets by admin clients on the in-process cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.errors import (
    ErrorCode,
    GroupHasMembersError,
    GroupIdNotFoundError,
    OffsetsChangedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kohort.testing import Cluster, ProducerRecord
from tests.support.awaited import EACH_ADMIN

_NUMBERS = itertools.count()
ORDERS = tuple(TopicPartition("orders", number) for number in range(2))
NOON = datetime(2026, 11, 23, 12, tzinfo=timezone(timedelta(hours=1)))
NOON_S = NOON.timestamp()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A topic with a record for each of ten minutes before noon in each partition."""
    with Cluster(topics={"orders": 2}) as running:
        for minute in range(10, 0, -1):
            at = int((NOON_S - 60 * minute) * 1000)
            for number in range(2):
                running.produce(
                    "orders", [ProducerRecord(value="x", timestamp=at, partition=number)]
                )
        yield running


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "retry_backoff_ms": 10,
        "wall_clock": lambda: NOON_S,
    }


@pytest.fixture
def group(cluster: Cluster) -> str:
    """An empty group with offset 5 and metadata in each partition."""
    name = f"group-{next(_NUMBERS)}"
    with KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=name, enable_auto_commit=False
    ) as consumer:
        consumer.assign(ORDERS)
        consumer.commit({tp: OffsetAndMetadata(5, "done", 0) for tp in ORDERS})
    return name


async def offsets(admin: Any, group: str) -> list[int]:
    found = (await admin.list_group_offsets(group))[group]
    return [at.offset for _, at in sorted(found.items())]


@EACH_ADMIN
@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", [0, 0]),
        ("latest", [10, 10]),
        (3, [3, 3]),
        ("3", [3, 3]),
        ("+2", [7, 7]),
        ("-2", [3, 3]),
        ("+100", [10, 10]),
        ("-2m", [8, 8]),
        (timedelta(minutes=4), [6, 6]),
        (NOON - timedelta(minutes=9, seconds=30), [1, 1]),
        ("2026-11-23T10:57:00Z", [7, 7]),
        (NOON, [10, 10]),
        ({ORDERS[1]: 1}, [5, 1]),
    ],
)
@pytest.mark.cases(13)
@pytest.mark.anyio
async def test_reset_sets_the_offsets_and_undo_restores_them(
    admin_class: Any, options: dict[str, Any], group: str, to: Any, expected: list[int]
) -> None:
    async with admin_class(**options) as admin:
        planned = await admin.reset_group_offsets(group, to, plan=True)
        assert await offsets(admin, group) == [5, 5]
        done = await admin.reset_group_offsets(group, planned)
        assert done == planned
        assert await offsets(admin, group) == expected
        assert {step.before.metadata for step in done.steps} == {"done"}
        await admin.reset_group_offsets(group, done.undo)
        found = (await admin.list_group_offsets(group))[group]
        assert dict(found) == dict.fromkeys(ORDERS, OffsetAndMetadata(5, "done", 0))


@EACH_ADMIN
@pytest.mark.anyio
async def test_undo_deletes_offsets_that_were_not_there(
    admin_class: Any, options: dict[str, Any]
) -> None:
    name = f"new-{next(_NUMBERS)}"
    async with admin_class(**options) as admin:
        with pytest.raises(GroupIdNotFoundError):
            await admin.reset_group_offsets(name, "earliest")
        done = await admin.reset_group_offsets(name, "earliest", topics="orders")
        assert await offsets(admin, name) == [0, 0]
        assert [step.before for step in done.steps] == [None, None]
        await admin.reset_group_offsets(name, done.undo)
        assert await offsets(admin, name) == []


@EACH_ADMIN
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.anyio
async def test_reset_is_refused_while_members_live(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str, protocol: Any
) -> None:
    async with AsyncKafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        client_id="billing-7",
        enable_auto_commit=False,
    ) as consumer:
        async with admin_class(**options) as admin:
            planned = await admin.reset_group_offsets(group, "earliest", plan=True)
            [one] = planned.members
            assert one.client_id == "billing-7"
            for to in ("earliest", planned):
                with pytest.raises(GroupHasMembersError, match="billing-7") as raised:
                    await admin.reset_group_offsets(group, to)
                assert raised.value.members == (one.member_id,)
            assert await offsets(admin, group) == [5, 5]
            await consumer.close()
            await admin.reset_group_offsets(group, planned)
            assert await offsets(admin, group) == [0, 0]


@EACH_ADMIN
@pytest.mark.anyio
async def test_a_commit_after_the_plan_is_noticed(
    admin_class: Any, options: dict[str, Any], group: str
) -> None:
    async with admin_class(**options) as admin:
        planned = await admin.reset_group_offsets(group, "earliest", plan=True)
        await admin.alter_group_offsets(group, {ORDERS[1]: 6})
        with pytest.raises(OffsetsChangedError, match="orders 1: the plan has other") as raised:
            await admin.reset_group_offsets(group, planned)
        assert {tp: at and at.offset for tp, at in raised.value.found.items()} == {ORDERS[1]: 6}
        assert await offsets(admin, group) == [5, 6]


@EACH_ADMIN
@pytest.mark.anyio
async def test_a_member_that_joins_amid_the_reset_is_noticed(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    async with admin_class(**options) as admin:
        cluster.fail("OffsetCommit", ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(UnknownMemberIdError):
            await admin.reset_group_offsets(group, "earliest")
        assert await offsets(admin, group) == [5, 5]


@EACH_ADMIN
@pytest.mark.anyio
async def test_a_commit_at_the_end_of_the_reset_is_noticed(
    admin_class: Any, cluster: Cluster, options: dict[str, Any], group: str
) -> None:
    reads = itertools.count(1)

    async def change_third(call: Any) -> Any:
        response = await call.proceed()
        if next(reads) == 3:  # after those of the plan and of the comparison with it
            response.groups[0].topics[0].partitions[0].committed_offset = 9
        return response

    async with admin_class(**options) as admin:
        with cluster.on("OffsetFetch", change_third):
            with pytest.raises(OffsetsChangedError, match="changed them after the reset") as raised:
                await admin.reset_group_offsets(group, "earliest")
        assert [at and at.offset for at in raised.value.found.values()] == [9]


@EACH_ADMIN
@pytest.mark.anyio
async def test_reset_of_partitions_leaves_the_others(
    admin_class: Any, options: dict[str, Any], group: str
) -> None:
    async with admin_class(**options) as admin:
        await admin.reset_group_offsets(group, "latest", partitions=ORDERS[:1])
        assert await offsets(admin, group) == [10, 5]
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'absent' does not exist"):
            await admin.reset_group_offsets(group, "latest", topics=["orders", "absent"])
        assert await offsets(admin, group) == [10, 5]


@EACH_ADMIN
@pytest.mark.anyio
async def test_arguments_of_a_reset_are_checked(
    admin_class: Any, options: dict[str, Any], group: str
) -> None:
    async with admin_class(**options) as admin:
        planned = await admin.reset_group_offsets(group, "latest", plan=True)
        with pytest.raises(ValueError, match="leave them out"):
            await admin.reset_group_offsets(group, planned, topics="orders")
        with pytest.raises(ValueError, match="not for 'other'"):
            await admin.reset_group_offsets("other", planned)
        with pytest.raises(ValueError, match="has no zone"):
            await admin.reset_group_offsets(group, "2026-11-23T09:00:00")
        assert await offsets(admin, group) == [5, 5]
