"""Expiration of committed offsets by the rules of their group, and deletion of empty groups."""

from __future__ import annotations

import struct
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.broker.groups import CommittedOffset
from kohort.broker.groups._expiration import expire
from kohort.broker.groups._transactional import PendingOffsets
from kohort.broker.groups.classic._records import offset_commit_value, read_key
from kohort.protocol.messages import (
    FindCoordinatorRequest,
    GroupMetadataKey,
    HeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kohort.testing import Cluster, MemoryCluster
from tests.broker.groups.machine import Machine
from tests.broker.memory_raw import MemoryRaw
from tests.broker.raw import Raw, find_coordinator, join_request
from tests.support.virtual import run_virtual

PLACE = TopicPartition("t", 0)
MINUTES = 60
SETTINGS = {"offsets_retention_minutes": 60, "offsets_retention_check_interval_ms": 60_000}


def cluster_of(**configs: Any) -> MemoryCluster:
    return MemoryCluster(topics={"t": 1, "u": 1}, group_settings=SETTINGS, **configs)


async def commit(cluster: MemoryCluster, topic: str = "t", member_id: str = "") -> None:
    """Commit offset 5 of the partition, as a member or without a member id."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1 if member_id else -1,
        member_id=member_id,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    answer = await MemoryRaw(cluster).ask(request, 8, await coordinator(cluster))
    assert answer.topics[0].partitions[0].error_code == 0


async def coordinator(cluster: MemoryCluster) -> int:
    asked = FindCoordinatorRequest(coordinator_keys=["g"])
    return (await MemoryRaw(cluster).ask(asked, 4)).coordinators[0].node_id


async def join(cluster: MemoryCluster, topic: str) -> str:
    """Create a stable group of one member with a subscription. Return the member's id."""
    raw, node = MemoryRaw(cluster), await coordinator(cluster)
    name = topic.encode()
    metadata = struct.pack(">hih", 0, 1, len(name)) + name + bytes(4)
    request = join_request(session_ms=1_800_000, metadata=metadata)
    request.member_id = (await raw.ask(request, 9, node)).member_id
    joined = await raw.ask(request, 9, node)
    assert joined.error_code == 0
    mine = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id)
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine],
    )
    assert (await raw.ask(sync, 3, node)).error_code == 0
    return joined.member_id


async def live(cluster: MemoryCluster, member_id: str, minutes: int) -> None:
    """Let time pass while the member sends heartbeats."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    for _ in range(minutes // 10):
        await anyio.sleep(10 * MINUTES)
        answer = await MemoryRaw(cluster).ask(request, 4, await coordinator(cluster))
        assert answer.error_code == 0


async def leave(cluster: MemoryCluster, member_id: str) -> None:
    request = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)]
    )
    await MemoryRaw(cluster).ask(request, 4, await coordinator(cluster))
    assert cluster.group("g").state == "Empty"


def tombstones(cluster: MemoryCluster) -> list[object]:
    records = cluster.records("__consumer_offsets")
    return [type(read_key(record.key or b"")) for record in records if record.value is None]


def test_offsets_of_an_empty_group_expire_since_it_became_empty() -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            member_id = await join(cluster, "t")
            await commit(cluster, "t", member_id)
            await live(cluster, member_id, 240)
            assert PLACE in cluster.committed("g"), "a member is subscribed to the topic"
            await leave(cluster, member_id)
            await anyio.sleep(59 * MINUTES)
            assert cluster.group("g").state == "Empty"
            assert cluster.committed("g")[PLACE].offset == 5
            await anyio.sleep(2 * MINUTES)
            assert cluster.committed("g") == {}
            assert cluster.group("g").state == "Dead"
            assert tombstones(cluster) == [OffsetCommitKey, GroupMetadataKey]

    run_virtual(main)


def test_offsets_without_members_expire_by_their_commit_time() -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            await commit(cluster, "t")
            await anyio.sleep(30 * MINUTES)
            await commit(cluster, "u")
            await anyio.sleep(31 * MINUTES)
            assert list(cluster.committed("g")) == [TopicPartition("u", 0)]
            await anyio.sleep(30 * MINUTES)
            assert cluster.group("g").state == "Dead"

    run_virtual(main)


def test_offsets_of_topics_that_no_member_reads_any_more_expire() -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            member_id = await join(cluster, "u")
            await commit(cluster, "t", member_id)
            await commit(cluster, "u", member_id)
            await live(cluster, member_id, 50)
            assert len(cluster.committed("g")) == 2
            await live(cluster, member_id, 20)
            assert cluster.group("g").is_stable
            assert list(cluster.committed("g")) == [TopicPartition("u", 0)]

    run_virtual(main)


def test_time_goes_on_where_the_coordinator_moves() -> None:
    async def main() -> None:
        async with cluster_of(brokers=2) as cluster:
            member_id = await join(cluster, "t")
            await commit(cluster, "t", member_id)
            await leave(cluster, member_id)
            await anyio.sleep(50 * MINUTES)
            cluster.move_coordinator("g")
            assert PLACE in cluster.committed("g")
            await anyio.sleep(12 * MINUTES)
            assert cluster.group("g").state == "Dead"
            cluster.move_coordinator("g")
            assert cluster.group("g").state == "Dead", "the tombstones are read"

    run_virtual(main)


def test_a_group_that_has_nothing_is_deleted_at_the_next_look() -> None:
    async def main() -> None:
        async with cluster_of() as cluster:
            await leave(cluster, await join(cluster, "t"))
            await anyio.sleep(2 * MINUTES)
            assert cluster.group("g").state == "Dead"

    run_virtual(main)


def test_by_default_they_live_for_a_week() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            await commit(cluster)
            for _ in range(7):
                assert PLACE in cluster.committed("g")
                await anyio.sleep(23 * 60 * MINUTES)
                await anyio.sleep(60 * MINUTES)
            await anyio.sleep(10 * MINUTES)
            assert cluster.group("g").state == "Dead"

    run_virtual(main)


def committed(at: float, expires_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(5, -1, "", 1_000_000 + int(at * 1000), bytes(16), expires_ms)


def test_offsets_of_open_transactions_hold_back_what_is_there() -> None:
    machine, pending = Machine(offsets_retention_minutes=1), PendingOffsets()
    machine.group.offsets["t", 0] = committed(0)
    pending.add(1, ("g", "t", 0), committed(0))
    assert not expire(machine.group, pending, 60.0)
    assert list(machine.group.offsets) == [("t", 0)]
    pending.remove_groups("g".__eq__)
    assert not expire(machine.group, pending, 59.9)
    assert expire(machine.group, pending, 60.0)
    assert machine.group.offsets == {}


@pytest.mark.parametrize(("retention_ms", "expires"), [(-1, False), (5_000, True)])
def test_old_clients_say_how_long_an_offset_is_kept(retention_ms: int, expires: bool) -> None:
    with Cluster(topics={"t": 1}) as cluster, Raw(cluster) as raw:
        find_coordinator(raw)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(group_id="g", retention_time_ms=retention_ms, topics=[topic])
        assert raw.ask(request, 4).topics[0].partitions[0].error_code == 0
        stored = cluster.records("__consumer_offsets")[-1].value or b""
        assert struct.unpack_from(">h", stored) == (1 if expires else 4,)
        if expires:
            committed_ms, expires_ms = struct.unpack_from(">qq", stored, len(stored) - 16)
            assert expires_ms - committed_ms == retention_ms


def test_a_time_to_expire_is_kept_to() -> None:
    machine = Machine(offsets_retention_minutes=1)
    machine.group.offsets["t", 0] = committed(0, 1_005_000)
    assert offset_commit_value(machine.group.offsets["t", 0])[:2] == b"\0\1"
    assert not expire(machine.group, PendingOffsets(), 4.9)
    assert expire(machine.group, PendingOffsets(), 5.0)
