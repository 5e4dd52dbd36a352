"""Share groups on a cluster: leaders that move, sessions that end, limits, and what tests see."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from kohort import TopicPartition
from kohort.broker.cluster._share_router import _BrokerView
from kohort.errors import ErrorCode, IllegalStateError
from kohort.protocol import messages as m
from kohort.testing import Cluster, MemoryCluster, SharedRecord
from tests.broker.raw import Raw
from tests.broker.share.members import Connection, Member, ack_codes, acquired
from tests.support.virtual import run_virtual

EARLIEST = {"share.auto.offset.reset": "earliest"}
FIRST = TopicPartition("t", 0)


def run(
    test: Callable[[MemoryCluster], Awaitable[None]], *, partitions: int = 1, **options: Any
) -> None:
    """Run a test on a cluster with ten records in each partition of ``t``."""

    async def main() -> None:
        async with MemoryCluster(topics={"t": partitions}, **options) as cluster:
            configure(cluster, "g", EARLIEST)
            for partition in range(partitions):
                cluster.produce("t", [f"v{n}" for n in range(10)], partition=partition)
            await test(cluster)

    run_virtual(main)


def configure(cluster: MemoryCluster, group: str, configs: dict[str, str]) -> None:
    cluster._read(lambda state: state.configs.groups.change(group, configs))


async def joined(cluster: MemoryCluster, name: str = "A", node: int = 1) -> Member:
    member = Member(cluster, "g", name, "t", node)
    await member.join()
    return member


def test_a_released_record_comes_again_and_counts() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        assert acquired(await member.fetch()) == {0: [(0, 9, 1)]}
        await member.acknowledge({0: [(0, 8, [1]), (9, 9, [2])]})
        assert cluster.share_state("g")[FIRST].records == {9: SharedRecord("available", 1)}
        assert acquired(await member.fetch()) == {0: [(9, 9, 2)]}

    run(main)


@pytest.mark.parametrize("wakes", [False, True])
def test_a_release_ends_the_wait_of_a_fetch_if_the_cluster_says_so(wakes: bool) -> None:
    async def main(cluster: MemoryCluster) -> None:
        member, other = await joined(cluster), await joined(cluster, "B")
        await member.fetch()
        took = 0.0

        async def wait() -> None:
            nonlocal took
            begun = anyio.current_time()
            assert acquired(await other.fetch(wait_ms=5_000)) == {0: [(0, 9, 2)]}
            took = anyio.current_time() - begun

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(1)
            await member.acknowledge({0: [(0, 9, [2])]})
        assert took == pytest.approx(1 if wakes else 5, abs=0.5)

    run(main, share_release_wakes=wakes)


def test_a_lock_ends_although_its_first_write_fails() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        await member.fetch()
        write, failures = _BrokerView.write_state, [ErrorCode.COORDINATOR_NOT_AVAILABLE]

        def fail_once(*change: Any) -> ErrorCode:
            return failures.pop() if failures else write(*change)

        with patch.object(_BrokerView, "write_state", fail_once):
            assert acquired(await member.fetch(wait_ms=10_000)) == {0: [(0, 9, 2)]}
        assert failures == []

    run(main, share_lock_ms=1_000)


def test_the_lock_of_a_cluster_ends_at_its_time_or_when_a_test_says_so() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member, other = await joined(cluster), await joined(cluster, "B")
        response = await member.fetch()
        assert response.acquisition_lock_timeout_ms == 300
        assert set(cluster.share_state("g")[FIRST].locks.values()) == {member.member_id}
        await anyio.sleep(0.29)
        assert acquired(await other.fetch(wait_ms=0)) == {}
        await anyio.sleep(0.02)
        assert cluster.share_state("g")[FIRST].locks == {}
        assert acquired(await other.fetch(wait_ms=0)) == {0: [(0, 9, 2)]}
        cluster.expire_locks("g")
        assert ack_codes(await other.acknowledge({0: [(0, 9, [1])]}))[0][0] == 121
        assert cluster.share_state("g")[FIRST].records[9] == SharedRecord("available", 2)
        with pytest.raises(IllegalStateError, match="there is no share group 'typo'"):
            cluster.expire_locks("typo")
        with pytest.raises(IllegalStateError, match="which commits no offsets"):
            await cluster.wait_for_lag("g", timeout=5)

    run(main, share_lock_ms=300)


def test_expired_locks_wake_a_fetch_that_waits() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member, other = await joined(cluster), await joined(cluster, "B")
        await member.fetch()
        started = anyio.current_time()
        assert acquired(await other.fetch(wait_ms=60_000)) == {0: [(0, 9, 2)]}
        assert anyio.current_time() - started == pytest.approx(1.0, abs=0.01)

    run(main, share_lock_ms=1_000)


def test_released_records_wake_no_fetch() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member, other = await joined(cluster), await joined(cluster, "B")
        await member.fetch()
        started = anyio.current_time()

        async def release() -> None:
            await anyio.sleep(0.1)
            await member.acknowledge({0: [(0, 9, [2])]})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(release)
            assert acquired(await other.fetch(wait_ms=700)) == {0: [(0, 9, 2)]}
        assert anyio.current_time() - started == pytest.approx(0.7, abs=0.01)

    run(main)


def test_a_connection_that_ends_releases_the_records_of_its_member() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member, other = await joined(cluster), await joined(cluster, "B")
        await other.fetch(wait_ms=0, max_records=0)
        assert acquired(await member.fetch()) == {0: [(0, 9, 1)]}
        await member.disconnect()
        assert acquired(await other.fetch()) == {0: [(0, 9, 2)]}
        # With the last session of the group here its locks are forgotten, after they are released.
        await other.disconnect()
        assert cluster.share_state("g")[FIRST].records[9] == SharedRecord("available", 2)
        member.session_epoch = 0
        assert acquired(await member.fetch()) == {0: [(0, 9, 3)]}

    run(main)


def test_a_group_without_connections_reads_its_state_again() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        await member.fetch()
        await member.acknowledge({0: [(0, 9, [1])]}, epoch=-1)
        await member.heartbeat(epoch=-1)
        await member.disconnect()
        cls = m.AlterShareGroupOffsetsRequest
        partition = cls.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)
        topic = cls.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
        altered = await Connection(cluster).ask(cls(group_id="g", topics=[topic]), 0)
        assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert acquired(await (await joined(cluster, "B")).fetch()) == {0: [(4, 9, 1)]}

    run(main)


def test_a_new_leader_knows_only_what_was_written() -> None:
    """The results are those of a leader change on Apache Kafka, the trace ``leader1``."""

    async def main(cluster: MemoryCluster) -> None:
        leader = cluster.leader("t")
        after = 3 - leader
        member = await joined(cluster, node=leader)
        there = Member(cluster, "g", "A", "t", after)
        there.topic_id = member.topic_id
        await member.fetch()
        await member.acknowledge({0: [(0, 1, [1]), (2, 2, [2])]})
        assert acquired(await member.fetch()) == {0: [(2, 2, 2)]}
        async with anyio.create_task_group() as tasks:
            parked: list[m.ShareFetchResponse] = []

            async def park() -> None:
                parked.append(await member.fetch(wait_ms=5_000))

            tasks.start_soon(park)
            await anyio.sleep(0.1)
            cluster.move_leader("t", to=after)
        # A fetch that waits at the old leader does not learn of the move.
        assert parked[0].responses == []
        assert ack_codes(await member.acknowledge({0: [(3, 4, [1])]}))[0] == (
            3,
            "This server does not host this topic-partition.",
        )
        (data,) = (await member.fetch()).responses[0].partitions
        assert (data.error_code, data.current_leader.leader_id) == (6, after)
        response = await member.fetch({0: [(3, 3, [1])]})
        assert response.responses[0].partitions[0].acknowledge_error_code == 3
        assert [node.node_id for node in response.node_endpoints] == [after]
        assert (await there.acknowledge({0: [(3, 4, [1])]})).error_code == 123
        assert acquired(await there.fetch()) == {0: [(2, 2, 2), (3, 9, 1)]}
        assert ack_codes(await there.acknowledge({0: [(3, 4, [1])]})) == {0: (0, None)}
        cluster.move_leader("t", to=leader)
        # The session of the first leader lives on, and its memory does not.
        assert acquired(await member.fetch()) == {0: [(2, 2, 2), (5, 9, 1)]}

    run(main, brokers=2, share_lock_ms=60_000)


def test_the_coordinators_move_with_their_state() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        await member.fetch()
        await member.acknowledge({0: [(0, 3, [1])]})
        before = cluster.group("g")
        assert (before.type, before.is_stable) == ("share", True)
        assert before.assignment == {member.member_id: frozenset([FIRST])}
        for _ in range(2):
            for topic in ("__consumer_offsets", "__share_group_state"):
                for partition in range(50):
                    cluster.move_leader(topic, partition)
            assert cluster.group("g") == before
        await member.acknowledge({0: [(4, 9, [1])]})
        assert cluster.share_state("g")[FIRST].start == 10

    run(main, brokers=2)


def test_the_limit_of_records_counts_over_all_partitions() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        every = range(3)
        found = acquired(await member.fetch(partitions=every, max_records=15, mode=1))
        assert found == {0: [(0, 9, 1)], 1: [(0, 4, 1)]}
        found = acquired(await member.fetch(partitions=every, max_records=12))
        assert found == {1: [(5, 9, 1)], 2: [(0, 9, 1)]}

    run(main, partitions=3)


def test_partitions_that_do_not_exist_are_refused_once() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        (data,) = (await member.fetch(partitions=[7], wait_ms=0)).responses[0].partitions
        assert (data.partition_index, data.error_code) == (7, 3)
        member.topic_id, known = bytes(15) + b"x", member.topic_id
        (data,) = (await member.fetch(partitions=[1], wait_ms=0)).responses[0].partitions
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        member.topic_id = known
        assert acquired(await member.fetch()) == {0: [(0, 9, 1)]}
        found = ack_codes(await member.acknowledge({7: [(0, 0, [1])]}))
        assert found[7][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main)


def test_share_groups_may_be_off() -> None:
    async def main(cluster: MemoryCluster) -> None:
        connection = Connection(cluster)
        request = m.ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", subscribed_topic_names=["t"]
        )
        assert (await connection.ask(request, 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        described = await connection.ask(m.ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        versions = m.ApiVersionsRequest(client_software_name="x", client_software_version="1")
        features = (await connection.ask(versions, 3)).finalized_features
        assert "share.version" not in [feature.name for feature in features]

    run(main, share_version=0)


def test_a_group_has_one_type() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        connection = Connection(cluster)
        heartbeat = m.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await connection.ask(heartbeat, 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        commit = m.OffsetCommitRequest(group_id="g")
        commit.topics = [
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1
                    )
                ],
            )
        ]
        response = await connection.ask(commit, 9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        listed = (await connection.ask(m.ListGroupsRequest(types_filter=["share"]), 5)).groups
        assert [(each.group_id, each.group_type, each.group_state) for each in listed] == [
            ("g", "share", "Stable")
        ]
        deleted = await connection.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await member.heartbeat(epoch=-1)
        deleted = await connection.ask(m.DeleteGroupsRequest(groups_names=["g"]), 2)
        assert deleted.results[0].error_code == ErrorCode.NONE
        assert cluster.group("g").state == "Dead"

    run(main)


def test_offsets_of_a_group_have_their_lag() -> None:
    async def main(cluster: MemoryCluster) -> None:
        member = await joined(cluster)
        await member.fetch()
        await member.acknowledge({0: [(0, 1, [1]), (4, 5, [1])]})
        await member.acknowledge({0: [(2, 2, [1])]})
        cls = m.DescribeShareGroupOffsetsRequest
        request = cls(
            groups=[
                cls.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None),
                cls.DescribeShareGroupOffsetsRequestGroup(group_id="none", topics=None),
            ]
        )
        found, unknown = (await Connection(cluster).ask(request, 1)).groups
        (partition,) = found.topics[0].partitions
        # The start is one write behind, and 2, 4 and 5 are over.
        assert (partition.start_offset, partition.lag) == (2, 5)
        assert (unknown.error_code, unknown.topics) == (0, [])

    run(main)


@cache
def coordinator_frames() -> list[tuple[bytes, bytes]]:
    """Return requests to the share coordinator of Apache Kafka, and its responses."""
    path = Path(__file__).parents[2] / "data" / "wire_frames_share.json"
    return [
        (bytes.fromhex(frame["req_hex"]), bytes.fromhex(frame["resp_hex"]))
        for frame in json.loads(path.read_text())["frames"]
        if frame["scenario"] == "coordinator" and frame["client"] == "probe"
    ]


def test_the_share_coordinator_responds_byte_for_byte_as_apache_kafka() -> None:
    frames = coordinator_frames()
    assert len(frames) > 20
    configs = {"share.coordinator.state.topic.num.partitions": 1}
    with Cluster(topics={"t": 1}, configs=configs) as cluster, Raw(cluster) as raw:
        topic = cluster._read(lambda state: state.topics.get("t"))
        assert topic is not None
        # The first request names the topic that all of them are about.
        named = frames[0][0]
        theirs = named[named.index(b"scg") + 4 :][:16]
        cluster._read(lambda state: state.share_router.state_topic())
        for request, response in frames:
            raw.send_frame(request.replace(theirs, topic.id))
            assert raw.receive_frame().replace(topic.id, theirs) == response
