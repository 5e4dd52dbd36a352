"""Brokers that stop and restart, and leaders and coordinators that move."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, IllegalStateError, UnknownTopicOrPartitionError
from kohort.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from kohort.testing import Cluster
from tests.broker.raw import Raw, find_coordinator, join, join_request


def metadata(cluster: Cluster, node: int) -> MetadataResponse:
    with Raw(cluster, node) as raw:
        return raw.ask(MetadataRequest(topics=None), 8)


def test_replica_leads_with_higher_epoch_after_broker_death() -> None:
    with Cluster(brokers=3, topics={"t": 3}, broker_session_timeout_ms=0) as cluster:
        cluster.produce("t", ["a", "b", "c"])
        assert [cluster.leader("t", n) for n in range(3)] == [1, 2, 3]
        cluster.kill_broker(2)
        assert cluster.live_brokers == [1, 3]
        assert [cluster.leader("t", n) for n in range(3)] == [1, 3, 3]
        assert [cluster.leader_epoch("t", n) for n in range(3)] == [0, 1, 0]
        seen = metadata(cluster, 1)
        assert [broker.node_id for broker in seen.brokers] == [1, 3]
        (topic,) = seen.topics
        assert [sorted(p.isr_nodes) for p in topic.partitions] == [[1, 3]] * 3
        assert [p.offline_replicas for p in topic.partitions] == [[2]] * 3
        with pytest.raises(ConnectionRefusedError):
            Raw(cluster, 2)
        cluster.start_broker(2)
        (topic,) = metadata(cluster, 2).topics
        assert [p.leader_id for p in topic.partitions] == [1, 3, 3], "leaders stay"
        assert [sorted(p.isr_nodes) for p in topic.partitions] == [[1, 2, 3]] * 3
        assert len(cluster.records("t")) == 3


def test_a_partition_with_one_replica_waits_for_its_broker() -> None:
    with Cluster(
        brokers=2, topics={"t": 2}, replication_factor=1, broker_session_timeout_ms=0
    ) as cluster:
        cluster.kill_broker(2)
        assert cluster.leader("t", 1) == -1
        (topic,) = metadata(cluster, 1).topics
        lost = topic.partitions[1]
        assert (lost.error_code, lost.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (lost.isr_nodes, lost.offline_replicas) == ([2], [2])
        cluster.start_broker(2)
        assert (cluster.leader("t", 1), cluster.leader_epoch("t", 1)) == (2, 2)


def test_connections_of_a_dead_broker_break() -> None:
    with Cluster(brokers=2) as cluster, Raw(cluster, 2) as raw:
        raw.ask(MetadataRequest(topics=None), 8)
        cluster.kill_broker(2)
        assert raw.is_closed()


def test_the_others_wait_for_the_session_of_a_broker_that_died() -> None:
    with Cluster(brokers=2, topics={"t": 2}, broker_session_timeout_ms=300) as cluster:
        cluster.kill_broker(2)
        assert cluster.leader("t", 1) == 2, "its session lives on"
        assert len(metadata(cluster, 1).brokers) == 2
        cluster.wait_until(lambda: cluster.leader("t", 1) == 1)
        assert len(metadata(cluster, 1).brokers) == 1


def test_broker_restarted_within_its_session_loses_leadership() -> None:
    with Cluster(brokers=2, topics={"t": 2}, broker_session_timeout_ms=60_000) as cluster:
        cluster.kill_broker(2)
        cluster.start_broker(2)
        assert (cluster.leader("t", 1), cluster.leader_epoch("t", 1)) == (1, 1)
        assert cluster.live_brokers == [1, 2]


def test_the_controller_is_elected_among_those_that_live() -> None:
    with Cluster(brokers=3, broker_session_timeout_ms=0) as cluster:
        assert cluster.controller == 1
        cluster.kill_broker(1)
        assert cluster.controller == 2
        cluster.start_broker(1)
        assert cluster.controller == 2, "an office is not given back"
        assert metadata(cluster, 3).controller_id == 2
        for node in (1, 2, 3):
            cluster.kill_broker(node)
        assert cluster.controller == -1
        cluster.start_broker(3)
        assert cluster.controller == 3


def test_topics_are_made_while_a_broker_is_away() -> None:
    with Cluster(brokers=3, broker_session_timeout_ms=0) as cluster:
        cluster.kill_broker(1)
        cluster.create_topic("t", 4)
        assert {cluster.leader("t", n) for n in range(4)} <= {2, 3}
        cluster.add_partitions("t", 6)
        cluster.start_broker(1)
        (topic,) = metadata(cluster, 1).topics
        assert all(len(p.isr_nodes) == 3 for p in topic.partitions)


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [(10, 0, ErrorCode.FENCED_LEADER_EPOCH), (10, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)
def test_a_leader_moves_and_the_old_one_says_so(version: int, epoch: int, error: int) -> None:
    with Cluster(brokers=3, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a"])
        with Raw(cluster, 1) as raw:
            waiting = FetchRequest(
                max_wait_ms=20_000,
                min_bytes=1,
                session_epoch=-1,
                topics=[
                    FetchRequest.FetchTopic(
                        topic="t",
                        partitions=[
                            FetchRequest.FetchPartition(
                                partition=0,
                                current_leader_epoch=epoch,
                                fetch_offset=1,
                                partition_max_bytes=1000,
                            )
                        ],
                    )
                ],
            )
            raw.send(waiting, version)
            cluster.wait_until(lambda: cluster.requests)
            assert cluster.move_leader("t") == 2
            _, answer = raw.receive()
            (moved,) = answer.responses[0].partitions  # type: ignore[attr-defined]  # of Fetch
            assert moved.error_code == error
        assert cluster.move_leader("t", 0, to=3) == 3
        assert cluster.leader_epoch("t") == 2


def test_epochs_in_which_nothing_was_written_have_an_end() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a", "b"])
        cluster.move_leader("t")
        cluster.move_leader("t")
        cluster.produce("t", ["c"])
        with Raw(cluster, cluster.leader("t")) as raw:
            ends = []
            for epoch in range(3):
                asked = OffsetForLeaderEpochRequest(
                    topics=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                            topic="t",
                            partitions=[
                                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                                    partition=0, current_leader_epoch=2, leader_epoch=epoch
                                )
                            ],
                        )
                    ]
                )
                (end,) = raw.ask(asked, 4).topics[0].partitions
                ends.append((end.leader_epoch, end.end_offset))
            assert ends == [(0, 2), (0, 2), (2, 3)]
            stale = ListOffsetsRequest(
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name="t",
                        partitions=[
                            ListOffsetsRequest.ListOffsetsPartition(
                                partition_index=0, current_leader_epoch=1, timestamp=-1
                            )
                        ],
                    )
                ]
            )
            (answer,) = raw.ask(stale, 4).topics[0].partitions
            assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


def stable_member(cluster: Cluster) -> str:
    """Create a group of one member with an assignment and a committed offset. Return its id."""
    with Raw(cluster) as raw:
        find_coordinator(raw)
    with Raw(cluster, cluster.coordinator("g")) as raw:
        joined = join(raw)
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=joined.member_id, assignment=b"mine"
        )
        synced = raw.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id=joined.member_id,
                assignments=[assignment],
            ),
            3,
        )
        assert synced.assignment == b"mine"
        assert commit(raw, joined.member_id, 7) == ErrorCode.NONE
        return joined.member_id


def commit(raw: Raw, member_id: str, offset: int) -> int:
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id=member_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset
                    )
                ],
            )
        ],
    )
    return raw.ask(request, 8).topics[0].partitions[0].error_code


@pytest.mark.parametrize("how", ["moves", "dies", "restarts"])
def test_members_go_on_where_the_coordinator_is_now(how: str) -> None:
    with Cluster(brokers=2, topics={"t": 1}, broker_session_timeout_ms=0) as cluster:
        member = stable_member(cluster)
        before = cluster.group("g")
        old = cluster.coordinator("g")
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        if how == "moves":
            with Raw(cluster, old) as raw:
                assert cluster.move_coordinator("g") != old
                assert raw.ask(heartbeat, 4).error_code == ErrorCode.NOT_COORDINATOR
        else:
            cluster.kill_broker(old)
            if how == "restarts":
                cluster.start_broker(old)
                cluster.move_coordinator("g", to=old)
        now = cluster.coordinator("g")
        assert (now == old) == (how == "restarts")
        assert cluster.group("g") == before
        with Raw(cluster, now) as raw:
            assert find_coordinator(raw) == now
            assert raw.ask(heartbeat, 4).error_code == ErrorCode.NONE
            again = SyncGroupRequest(group_id="g", generation_id=1, member_id=member)
            assert raw.ask(again, 3).assignment == b"mine"
            assert commit(raw, member, 9) == ErrorCode.NONE
            fetched = raw.ask(
                OffsetFetchRequest(
                    groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
                ),
                8,
            )
            assert fetched.groups[0].topics[0].partitions[0].committed_offset == 9


def test_a_parked_join_is_answered_when_the_coordinator_moves() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        stable_member(cluster)
        with Raw(cluster, cluster.coordinator("g")) as raw:
            member = raw.ask(join_request(), 9).member_id
            raw.send(join_request(member), 9)
            cluster.wait_until(lambda: cluster.group("g").state == "PreparingRebalance")
            cluster.move_coordinator("g")
            _, answer = raw.receive()
            assert answer.error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
        assert cluster.group("g").state == "Stable", "as the log has it"


def test_what_cannot_be_done_is_said() -> None:
    with Cluster(brokers=2, topics={"t": 1}, replication_factor=1) as cluster:
        with pytest.raises(IllegalStateError, match="not running"):
            cluster.kill_broker(3)
        with pytest.raises(IllegalStateError, match="killed"):
            cluster.start_broker(1)
        with pytest.raises(IllegalStateError, match="cannot lead t-0"):
            cluster.move_leader("t", 0, to=2)
        with pytest.raises(UnknownTopicOrPartitionError):
            cluster.leader("t", 1)


def test_coordinator_without_a_live_broker_is_not_available() -> None:
    with Cluster(brokers=2, replication_factor=1, broker_session_timeout_ms=0) as cluster:
        with Raw(cluster, 1) as raw:
            names = [f"g{number}" for number in range(50)]
            found = {name: find_coordinator(raw, name) for name in names}
            of_second = next(name for name in names if found[name] == 2)
            cluster.kill_broker(2)
            for version, message in ((3, "The coordinator is not available."), (4, "")):
                request = FindCoordinatorRequest(key=of_second)
                if version == 4:
                    request = FindCoordinatorRequest(coordinator_keys=[of_second])
                answer = raw.ask(request, version)
                one = answer.coordinators[0] if version == 4 else answer
                assert one.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert one.error_message == message


def test_transactional_commit_is_early_before_the_offsets_topic() -> None:
    with Cluster(1, topics={"t": 1}) as cluster, Raw(cluster, 1) as raw:
        cls = TxnOffsetCommitRequest
        partition = cls.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = cls.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        request = cls(transactional_id="x", group_id="g", producer_id=1, topics=[topic])
        answer = raw.ask(request, 3)
        code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
