"""The group APIs over the wire: joining, offsets, describing, deleting."""

from __future__ import annotations

import pytest

from kohort.broker._hashes import coordinator_partition
from kohort.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kohort.testing import Cluster
from kohort.types import OffsetAndMetadata, TopicPartition
from tests.broker.raw import Raw, find_coordinator, join, join_request


def sync(raw: Raw, member: str, generation: int = 1, assignment: bytes = b"A") -> bytes:
    response = raw.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            ],
        ),
        3,
    )
    assert response.error_code == 0
    return bytes(response.assignment)


def commit_request(
    member: str = "",
    generation: int = -1,
    *,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    partition: int = 0,
    group: str = "g",
    metadata: str | None = "m",
    offset: int = 7,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
    )


def committed_error(response: OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


def topic_id(raw: Raw) -> bytes:
    topics = raw.ask(MetadataRequest(topics=None), 12).topics
    return next(bytes(topic.topic_id) for topic in topics if topic.name == "t")


@pytest.mark.parametrize("version", range(7))
def test_a_group_has_one_coordinator_whoever_is_asked(version: int) -> None:
    with Cluster(brokers=3) as cluster:
        found = set()
        for node in (1, 2, 3):
            with Raw(cluster, node) as raw:
                if version < 4:
                    one = raw.ask(FindCoordinatorRequest(key="g"), version)
                    assert one.error_message == ("NONE" if version else "")
                    found.add((one.node_id, one.host, one.port))
                else:
                    request = FindCoordinatorRequest(coordinator_keys=["g"])
                    (coordinator,) = raw.ask(request, version).coordinators
                    found.add((coordinator.node_id, coordinator.host, coordinator.port))
        assert len(found) == 1
        led = cluster._call(
            lambda server: (
                server.state.topics._by_name["__consumer_offsets"]
                .partitions[coordinator_partition("g", 50)]
                .leader
            )
        )
        assert {node_id for node_id, _, _ in found} == {led}


def test_a_coordinator_of_something_unknown(raw: Raw) -> None:
    request = FindCoordinatorRequest(key_type=9, coordinator_keys=["g"])
    assert raw.ask(request, 4).coordinators[0].error_code == 42


def test_other_brokers_do_not_coordinate_the_group() -> None:
    with Cluster(brokers=3) as cluster:
        with Raw(cluster, 1) as raw:
            coordinator = find_coordinator(raw)
        other = coordinator % 3 + 1
        with Raw(cluster, other) as raw:
            assert raw.ask(join_request(), 9).error_code == 16
            assert raw.ask(HeartbeatRequest(group_id="g"), 4).error_code == 16
            assert raw.ask(SyncGroupRequest(group_id="g"), 4).error_code == 16
            assert raw.ask(LeaveGroupRequest(group_id="g"), 4).error_code == 16
            described = raw.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0]
            assert described.error_code == 16
            fetched = raw.ask(
                OffsetFetchRequest(
                    groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
                ),
                8,
            )
            assert fetched.groups[0].error_code == 16


@pytest.mark.parametrize("version", range(10))
def test_joining_in_every_version(raw: Raw, version: int) -> None:
    response = join(raw, version)
    assert (response.generation_id, response.protocol_name) == (1, "range")
    assert response.leader == response.member_id
    assert [bytes(member.metadata) for member in response.members] == [b"m"]
    assert response.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", [0, 6, 9])
def test_requests_that_no_group_takes(raw: Raw, version: int) -> None:
    find_coordinator(raw)
    assert raw.ask(join_request(group=""), version).error_code == 24
    assert raw.ask(join_request(session_ms=1), version).error_code == 26
    assert raw.ask(join_request(session_ms=1_800_001), version).error_code == 26
    assert raw.ask(join_request(protocols=()), version).error_code == 23
    unknown = raw.ask(join_request("zz", group="other"), version)
    assert (unknown.error_code, unknown.member_id) == (25, "zz")


def test_requests_for_a_group_that_is_not_there(raw: Raw) -> None:
    find_coordinator(raw)
    assert raw.ask(HeartbeatRequest(group_id="g", member_id="m"), 4).error_code == 25
    assert raw.ask(SyncGroupRequest(group_id="g", member_id="m"), 4).error_code == 25
    unnamed = SyncGroupRequest(group_id="g", member_id="m")
    assert raw.ask(unnamed, 5).error_code == 23, "version 5 names the protocol"
    one = LeaveGroupRequest.MemberIdentity(member_id="m")
    left = raw.ask(LeaveGroupRequest(group_id="g", members=[one]), 3)
    assert (left.error_code, [m.error_code for m in left.members]) == (0, [25])
    assert raw.ask(LeaveGroupRequest(group_id="g", member_id="m"), 2).error_code == 25


@pytest.mark.parametrize("version", range(6))
def test_leaving_in_every_version(cluster: Cluster, raw: Raw, version: int) -> None:
    member = join(raw).member_id
    if version < 3:
        left = raw.ask(LeaveGroupRequest(group_id="g", member_id=member), version)
    else:
        one = LeaveGroupRequest.MemberIdentity(member_id=member)
        left = raw.ask(LeaveGroupRequest(group_id="g", members=[one]), version)
    assert left.error_code == 0
    group = cluster.group("g")
    assert (group.state, group.generation, group.members) == ("Empty", 2, ())


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_in_every_version(cluster: Cluster, raw: Raw, version: int) -> None:
    find_coordinator(raw)
    assert committed_error(raw.ask(commit_request(topic_id=topic_id(raw)), version)) == 0
    epoch = 3 if version >= 6 else -1
    assert cluster.committed("g") == {TopicPartition("t", 0): OffsetAndMetadata(7, "m", epoch)}


def test_commits_that_are_refused(raw: Raw) -> None:
    find_coordinator(raw)
    assert committed_error(raw.ask(commit_request("m", 3), 9)) == 69
    assert committed_error(raw.ask(commit_request("m", 3), 8)) == 22
    assert committed_error(raw.ask(commit_request(topic="nosuch"), 9)) == 3
    assert committed_error(raw.ask(commit_request(partition=5), 9)) == 3
    assert committed_error(raw.ask(commit_request(topic_id=b"x" * 16), 10)) == 100
    assert committed_error(raw.ask(commit_request(metadata="x" * 5000), 9)) == 12
    assert committed_error(raw.ask(commit_request(metadata=None), 9)) == 0
    member = join(raw, group="g").member_id
    sync(raw, member)
    assert committed_error(raw.ask(commit_request(), 9)) == 25
    assert committed_error(raw.ask(commit_request(member, 1), 9)) == 0


def fetched(response: OffsetFetchResponse, version: int) -> list[tuple[int, int, int, str | None]]:
    """Return partition, offset, error and metadata of the only topic."""
    if version >= 8:
        (group,) = response.groups
        return [
            (p.partition_index, p.committed_offset, p.error_code, p.metadata)
            for topic in group.topics
            for p in topic.partitions
        ]
    return [
        (p.partition_index, p.committed_offset, p.error_code, p.metadata)
        for topic in response.topics
        for p in topic.partitions
    ]


def fetch_request(version: int, known: bytes, *, everything: bool = False) -> OffsetFetchRequest:
    if version >= 8:
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(
            name="t", topic_id=known, partition_indexes=[0, 1]
        )
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id="g", topics=None if everything else [topic]
        )
        return OffsetFetchRequest(groups=[group])
    old = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    return OffsetFetchRequest(group_id="g", topics=None if everything else [old])


@pytest.mark.parametrize("version", range(1, 11))
def test_what_is_committed_is_told_in_every_version(raw: Raw, version: int) -> None:
    find_coordinator(raw)
    known = topic_id(raw)
    nothing = [(0, -1, 0, ""), (1, -1, 0, "")]
    assert fetched(raw.ask(fetch_request(version, known), version), version) == nothing
    raw.ask(commit_request(), 9)
    assert fetched(raw.ask(fetch_request(version, known), version), version) == [
        (0, 7, 0, "m"),
        (1, -1, 0, ""),
    ]
    if version >= 2:
        request = fetch_request(version, known, everything=True)
        assert fetched(raw.ask(request, version), version) == [(0, 7, 0, "m")]


def test_offsets_of_a_topic_id_that_is_not_known(raw: Raw) -> None:
    find_coordinator(raw)
    answer = fetched(raw.ask(fetch_request(10, b"x" * 16), 10), 10)
    assert [error for _, _, error, _ in answer] == [100, 100]


@pytest.mark.parametrize("version", range(7))
def test_describing_a_group_in_every_version(raw: Raw, version: int) -> None:
    member = join(raw).member_id
    sync(raw, member, assignment=b"mine")
    group = raw.ask(DescribeGroupsRequest(groups=["g"]), version).groups[0]
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (one,) = group.members
    assert (one.member_id, one.client_id, one.client_host) == (member, "raw", "/127.0.0.1")
    assert (bytes(one.member_metadata), bytes(one.member_assignment)) == (b"m", b"mine")


def test_a_group_that_is_not_there_is_dead(raw: Raw) -> None:
    find_coordinator(raw)
    old = raw.ask(DescribeGroupsRequest(groups=["nope"]), 5).groups[0]
    assert (old.error_code, old.group_state) == (0, "Dead")
    new = raw.ask(DescribeGroupsRequest(groups=["nope"]), 6).groups[0]
    assert (new.error_code, new.error_message) == (69, "Group nope not found.")


def test_operations_are_told_when_asked_for(raw: Raw) -> None:
    join(raw)
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert raw.ask(request, 3).groups[0].authorized_operations == 3400


@pytest.mark.parametrize("version", range(6))
def test_listing_groups(raw: Raw, version: int) -> None:
    join(raw)
    find_coordinator(raw)
    raw.ask(commit_request(group="simple"), 9)
    groups = {group.group_id: group for group in raw.ask(ListGroupsRequest(), version).groups}
    assert set(groups) == {"g", "simple"}
    assert (groups["g"].protocol_type, groups["simple"].protocol_type) == ("consumer", "")
    if version >= 4:
        chosen = raw.ask(ListGroupsRequest(states_filter=["empty"]), version).groups
        assert [group.group_id for group in chosen] == ["simple"]
    if version >= 5:
        assert groups["g"].group_type == "classic"
        assert raw.ask(ListGroupsRequest(types_filter=["consumer"]), version).groups == []


@pytest.mark.parametrize("version", range(3))
def test_deleting_groups(cluster: Cluster, raw: Raw, version: int) -> None:
    member = join(raw).member_id
    raw.ask(commit_request(group="simple"), 9)
    request = DeleteGroupsRequest(groups_names=["g", "simple", "nope"])
    answer = {r.group_id: r.error_code for r in raw.ask(request, version).results}
    assert answer == {"g": 68, "simple": 0, "nope": 69}
    assert cluster.committed("simple") == {}
    one = LeaveGroupRequest.MemberIdentity(member_id=member)
    raw.ask(LeaveGroupRequest(group_id="g", members=[one]), 3)
    assert raw.ask(DeleteGroupsRequest(groups_names=["g"]), version).results[0].error_code == 0
    assert cluster.group("g").state == "Dead"
    assert [(r.key, r.value) for r in cluster.records("__consumer_offsets")][-1][1] is None


def test_what_was_committed_for_a_topic_goes_with_it(cluster: Cluster, raw: Raw) -> None:
    find_coordinator(raw)
    raw.ask(commit_request(), 9)
    cluster.delete_topic("t")
    assert cluster.committed("g") == {}


def test_a_session_expires_without_anybody_asking(cluster: Cluster) -> None:
    with Cluster(group_settings={"min_session_timeout_ms": 10}) as quick, Raw(quick) as raw:
        find_coordinator(raw)
        member = raw.ask(join_request(session_ms=2_000), 9).member_id
        raw.ask(join_request(member, session_ms=2_000), 9)
        sync(raw, member)
        assert quick.group("g").is_stable
        quick.wait_until(lambda: quick.group("g").state == "Empty")
    assert cluster.group("g").state == "Dead"


def test_another_coordinator_goes_on_with_what_the_log_tells(cluster: Cluster, raw: Raw) -> None:
    member = join(raw).member_id
    sync(raw, member, assignment=b"kept")
    raw.ask(commit_request(member, 1), 9)
    index = coordinator_partition("g", 50)

    def move(server: object) -> None:
        from kohort.broker._cluster_server import ClusterServer
        from kohort.broker.cluster._transaction_router import stored_records

        assert isinstance(server, ClusterServer)
        partition = server.state.topics._by_name["__consumer_offsets"].partitions[index]
        coordinator = server.brokers[1].coordinator
        coordinator.unload(index)
        assert coordinator.check("g") == 16
        coordinator.load(index, *stored_records(partition.log))

    cluster._call(move)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert raw.ask(beat, 4).error_code == 0
    assert sync(raw, member) == b"kept"
    assert cluster.committed("g")[TopicPartition("t", 0)].offset == 7


def test_waiting_join_gets_an_error_when_its_coordinator_moves(cluster: Cluster, raw: Raw) -> None:
    member = join(raw).member_id
    with Raw(cluster) as other:
        other.send(join_request(), 3)
        assert not other.has_answer(0.05)
        index = coordinator_partition("g", 50)
        cluster._call(lambda server: server.brokers[1].coordinator.unload(index))
        _, answer = other.receive()
        assert answer.error_code == 16  # type: ignore[attr-defined]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
    assert raw.ask(beat, 4).error_code == 16
