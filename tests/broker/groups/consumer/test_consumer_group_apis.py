"""Groups of the consumer protocol over the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kohort.testing import Cluster
from kohort.types import TopicPartition
from tests.broker.raw import Raw, find_coordinator


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 2}) as cluster:
        yield cluster


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster) as connection:
        find_coordinator(connection)
        yield connection


def beat(
    raw: Raw, member: str = "m", epoch: int = 0, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    return raw.ask(request, version)


def commit(raw: Raw, member: str, epoch: int, version: int, topic_id: bytes) -> int:
    """Commit an offset of t-0 and return the error code. Version 10 names the topic by its id."""
    cls = OffsetCommitRequest
    topic = cls.OffsetCommitRequestTopic(
        partitions=[cls.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    )
    if version >= 10:
        topic.topic_id = topic_id
    else:
        topic.name = "t"
    request = cls(
        group_id="g", generation_id_or_member_epoch=epoch, member_id=member, topics=[topic]
    )
    return raw.ask(request, version).topics[0].partitions[0].error_code


def test_member_gets_all_partitions_when_alone(cluster: Cluster, raw: Raw) -> None:
    response = beat(raw)
    assert (response.error_code, response.member_epoch) == (0, 2)
    assert response.heartbeat_interval_ms == 5000
    assert response.assignment is not None
    (topic,) = response.assignment.topic_partitions
    assert list(topic.partitions) == [0, 1]
    group = cluster.group("g")
    assert (group.type, group.state, group.generation) == ("consumer", "Stable", 2)
    assert group.assignment == {"m": {TopicPartition("t", 0), TopicPartition("t", 1)}}


def test_broker_makes_member_id_when_version_0_has_none(raw: Raw) -> None:
    response = beat(raw, member="", version=0)
    assert response.error_code == 0
    assert response.member_id is not None
    assert len(response.member_id) == 22
    assert beat(raw, member="", version=1).error_code == 42


def test_group_is_described_and_listed_by_its_protocol(raw: Raw) -> None:
    beat(raw)
    (group,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("m", 2, 1)
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == "t"
    (listed,) = raw.ask(ListGroupsRequest(states_filter=["stable"]), 5).groups
    assert (listed.group_type, listed.group_state) == ("consumer", "Stable")
    assert raw.ask(ListGroupsRequest(types_filter=["classic"]), 5).groups == []


@pytest.mark.parametrize(("version", "error"), [(5, 0), (6, 69)])
def test_describe_groups_shows_consumer_group_as_dead(raw: Raw, version: int, error: int) -> None:
    beat(raw)
    (group,) = raw.ask(DescribeGroupsRequest(groups=["g"]), version).groups
    assert (group.error_code, group.group_state) == (error, "Dead")


def test_classic_apis_do_not_know_a_consumer_member(raw: Raw) -> None:
    beat(raw)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    assert raw.ask(heartbeat, 4).error_code == 25
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=2,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
    )
    assert raw.ask(sync, 5).error_code == 25


def test_leave_group_removes_a_consumer_member(cluster: Cluster, raw: Raw) -> None:
    beat(raw)
    identity = LeaveGroupRequest.MemberIdentity
    request = LeaveGroupRequest(
        group_id="g", members=[identity(member_id="m"), identity(member_id="x")]
    )
    assert [each.error_code for each in raw.ask(request, 5).members] == [0, 25]
    assert cluster.group("g").state == "Empty"
    assert beat(raw, epoch=2).error_code == 25


def test_group_is_deleted_only_without_members(cluster: Cluster, raw: Raw) -> None:
    beat(raw)
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert raw.ask(delete, 2).results[0].error_code == 68
    beat(raw, epoch=-1)
    assert raw.ask(delete, 2).results[0].error_code == 0
    assert cluster.group("g").state == "Dead"
    assert beat(raw, epoch=2).error_code == 69


@pytest.mark.parametrize(
    ("member", "epoch", "version", "error"),
    [
        ("m", 2, 9, 0),
        ("m", 2, 10, 0),
        ("m", 3, 9, 113),
        ("m", 1, 9, 113),
        ("x", 2, 9, 25),
        ("", -1, 9, 25),
        ("m", 2, 8, 35),
    ],
)
def test_commits_are_checked_by_the_member_epoch(
    cluster: Cluster, raw: Raw, member: str, epoch: int, version: int, error: int
) -> None:
    response = beat(raw)
    assert response.assignment is not None
    topic_id = bytes(response.assignment.topic_partitions[0].topic_id)
    assert commit(raw, member, epoch, version, topic_id) == error
    assert bool(cluster.committed("g")) == (error == 0)


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [("m", 2, 0), ("m", 1, 113), ("m", 3, 113), ("x", 2, 25), ("", -1, 25), (None, -1, 0)],
)
def test_fetched_offsets_are_checked_by_the_member_epoch(
    raw: Raw, member: str | None, epoch: int, error: int
) -> None:
    beat(raw)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g", member_id=member, member_epoch=epoch, topics=None
    )
    response = raw.ask(OffsetFetchRequest(groups=[group]), 9)
    assert response.groups[0].error_code == error


def test_offsets_of_a_subscribed_topic_are_not_deleted(raw: Raw) -> None:
    beat(raw)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="t",
        partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)],
    )
    response = raw.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert response.topics[0].partitions[0].error_code == 86


def test_description_shows_partitions_that_await_revocation() -> None:
    cluster = Cluster(topics={"t": 2}, consumer_assignment_interval_ms=0)
    with cluster, Raw(cluster) as raw:
        find_coordinator(raw)
        beat(raw, "a")
        beat(raw, "b")
        to_keep = beat(raw, "a", 2).assignment
        (group,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert to_keep is not None
    assert [len(topic.partitions) for topic in to_keep.topic_partitions] == [1]
    shown = {
        member.member_id: [each.partitions for each in member.assignment.topic_partitions]
        for member in group.members
    }
    assert shown == {"a": [[0, 1]], "b": []}


def test_leave_group_accepts_a_member_that_is_named_twice(raw: Raw) -> None:
    beat(raw, "a")
    beat(raw, "b")
    cls = LeaveGroupRequest.MemberIdentity
    named = [cls(member_id=each) for each in ("a", "nobody", "a")]
    response = raw.ask(LeaveGroupRequest(group_id="g", members=named), 5)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in response.members] == [0, unknown, 0]
    (group,) = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert [member.member_id for member in group.members] == ["b"]


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        (None, -1, 0),
        (None, 2, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 2, 0),
    ],
)
def test_fetch_with_epoch_names_its_member(
    raw: Raw, member: str | None, epoch: int, error: int
) -> None:
    assert beat(raw).member_epoch == 2
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g", member_id=member, member_epoch=epoch, topics=None
    )
    (found,) = raw.ask(OffsetFetchRequest(groups=[wanted]), 9).groups
    assert found.error_code == error


def test_members_go_on_after_their_coordinator_has_moved() -> None:
    with Cluster(brokers=2, topics={"t": 2}) as cluster:
        with Raw(cluster, cluster.coordinator("g")) as raw:
            beat(raw)
            node = cluster.move_coordinator("g")
            assert beat(raw, epoch=2).error_code == 16
        with Raw(cluster, node) as raw:
            response = beat(raw, epoch=2)
            assert (response.error_code, response.member_epoch, response.assignment) == (0, 2, None)
        assert cluster.group("g").type == "consumer"


def test_faults_refuse_heartbeats_of_the_consumer_protocol(cluster: Cluster, raw: Raw) -> None:
    cluster.fail("ConsumerGroupHeartbeat", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert beat(raw).error_code == 14
    assert beat(raw).error_code == 0
