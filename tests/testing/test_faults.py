"""Faults that a test injects into requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.broker.apis import SERVED
from kohort.broker.log._corruption import DAMAGES
from kohort.errors import (
    CorruptBatchError,
    ErrorCode,
    InvalidOptionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from kohort.protocol import APIS, Request, Response
from kohort.protocol import messages as m
from kohort.testing import Action, Call, Cluster
from tests.broker.raw import Raw, find_coordinator

METADATA = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])
HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="x")


def consumer(cluster: Cluster, **options: object) -> KafkaConsumer:
    keywords: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
        "retry_backoff_ms": 20,
        **options,
    }
    return KafkaConsumer("t", **keywords)


def read(reader: KafkaConsumer, count: int) -> list[bytes]:
    """Poll until this many records arrived. Return their values."""
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    while len(values) < count:
        assert time.monotonic() < deadline, f"not in time; read {values}"
        for part in reader.poll(timeout_ms=100).values():
            values += [record.value or b"" for record in part]
    return values


# Handlers


def test_a_handler_sees_a_request_and_lets_it_pass(cluster: Cluster, raw: Raw) -> None:
    seen: list[Call] = []
    with cluster.on("Metadata", seen.append) as fault:
        assert raw.ask(METADATA, 8).topics[0].error_code == 0
        assert fault.hits == 0, "passing is not counted"
    (call,) = seen
    assert (call.api, call.version, call.node_id, call.client_id) == ("Metadata", 8, 1, "raw")
    assert isinstance(call.message, m.MetadataRequest)
    raw.ask(METADATA, 8)
    assert len(seen) == 1, "it is over"


def test_a_handler_answers_changes_or_drops(cluster: Cluster, raw: Raw) -> None:
    cluster.on("Heartbeat", lambda _: m.HeartbeatResponse(error_code=99), keep=False)
    assert raw.ask(HEARTBEAT, 4).error_code == 99
    assert raw.ask(HEARTBEAT, 4).error_code == ErrorCode.NOT_COORDINATOR

    async def rename(call: Call) -> Response | None:
        answer = await call.proceed()
        assert isinstance(answer, m.MetadataResponse)
        answer.cluster_id = "renamed"
        return answer

    cluster.on("Metadata", rename, keep=2)
    answers = [raw.ask(METADATA, 8).cluster_id for _ in range(3)]
    assert answers[:2] == ["renamed"] * 2 != answers[1:]
    cluster.on(None, lambda _: Action.DROP, keep=False)
    raw.send(METADATA, 8)
    assert raw.is_closed()


def test_handlers_act_in_the_order_of_their_making(cluster: Cluster, raw: Raw) -> None:
    order: list[str] = []

    async def around(call: Call) -> None:
        order.append("before")
        await call.proceed()
        order.append("after")

    cluster.on("Heartbeat", around)
    cluster.on("Heartbeat", lambda _: order.append("passes"))
    cluster.fail("Heartbeat", ErrorCode.ILLEGAL_GENERATION)
    assert raw.ask(HEARTBEAT, 4).error_code == ErrorCode.ILLEGAL_GENERATION
    assert order == ["before", "passes", "after"]
    cluster.stop_faults()
    assert raw.ask(HEARTBEAT, 4).error_code == ErrorCode.NOT_COORDINATOR


def test_what_came_is_remembered_whole(cluster: Cluster, raw: Raw) -> None:
    raw.ask(HEARTBEAT, 4)
    assert cluster.requests[-1].message == HEARTBEAT


def test_a_fault_is_for_one_broker_or_one_client() -> None:
    with Cluster(brokers=2) as cluster, Raw(cluster, 1) as one, Raw(cluster, 2) as two:
        cluster.fail("Heartbeat", ErrorCode.UNKNOWN_SERVER_ERROR, node=2, client_id="a", times=None)
        assert one.ask(HEARTBEAT, 4, "a").error_code == ErrorCode.NOT_COORDINATOR
        assert two.ask(HEARTBEAT, 4, "b").error_code == ErrorCode.NOT_COORDINATOR
        assert two.ask(HEARTBEAT, 4, "a").error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_chance_goes_by_the_seed() -> None:
    runs = []
    for seed in (1, 1, 2):
        with Cluster(seed=seed) as cluster, Raw(cluster) as raw:
            cluster.fail("Heartbeat", ErrorCode.UNKNOWN_SERVER_ERROR, times=None, chance=0.5)
            runs.append([raw.ask(HEARTBEAT, 4).error_code for _ in range(30)])
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == 2


def test_fault_with_an_impossible_argument_is_refused_at_once(cluster: Cluster) -> None:
    wrong: list[Callable[[], object]] = [
        lambda: cluster.fail("Fetch", cast(ErrorCode, "NOPE")),
        lambda: cluster.on("Fetch", cast(Any, 5)),
        lambda: cluster.delay("Fetch", -1),
        lambda: cluster.delay("Fetch", (2, 1)),
        lambda: cluster.hang("Fetch", node=9),
    ]
    for ask in wrong:
        with pytest.raises(InvalidOptionError):
            ask()
    assert not cluster._call(lambda server: server.dispatcher.faults._rules)


def test_a_handler_that_returns_what_is_no_answer_is_told_so(
    cluster: Cluster, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.on("Metadata", cast(Any, lambda call: 42))
    raw.send(METADATA, 8)
    assert raw.is_closed()
    assert "a handler for Metadata returned 42" in caplog.text


def test_what_cannot_be_is_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises(InvalidOptionError, match="JoinGroop"):
        cluster.on("JoinGroop", lambda _: None)
    with pytest.raises(InvalidOptionError):
        cluster.fail("Fetch", ErrorCode.UNKNOWN_SERVER_ERROR, times=0)
    with pytest.raises(InvalidOptionError):
        cluster.slow(piece=0)
    cluster.produce("t", ["x"], partition=0)
    with pytest.raises(InvalidOptionError, match="how="):
        cluster.corrupt(TopicPartition("t", 0), 0, "badly")
    with pytest.raises(OffsetOutOfRangeError):
        cluster.corrupt(TopicPartition("t", 0), 1)


# Errors

ASKED: dict[str, Request[Response]] = {
    "Produce": m.ProduceRequest(
        acks=1,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name="t", partition_data=[m.ProduceRequest.PartitionProduceData(index=0)]
            )
        ],
    ),
    "Fetch": m.FetchRequest(
        topics=[
            m.FetchRequest.FetchTopic(
                topic="t", partitions=[m.FetchRequest.FetchPartition(partition=0)]
            )
        ]
    ),
    "ListOffsets": m.ListOffsetsRequest(
        topics=[
            m.ListOffsetsRequest.ListOffsetsTopic(
                name="t", partitions=[m.ListOffsetsRequest.ListOffsetsPartition()]
            )
        ]
    ),
    "OffsetCommit": m.OffsetCommitRequest(
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t", partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition()]
            )
        ]
    ),
    "OffsetForLeaderEpoch": m.OffsetForLeaderEpochRequest(
        topics=[
            m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic="t", partitions=[m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition()]
            )
        ]
    ),
    "DeleteRecords": m.DeleteRecordsRequest(
        topics=[
            m.DeleteRecordsRequest.DeleteRecordsTopic(
                name="t", partitions=[m.DeleteRecordsRequest.DeleteRecordsPartition()]
            )
        ]
    ),
    "OffsetFetch": m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g")]
    ),
    "FindCoordinator": m.FindCoordinatorRequest(coordinator_keys=["g"]),
    "Metadata": m.MetadataRequest(topics=None),
    "DeleteTopics": m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name="t")], topic_names=[]
    ),
    "CreateTopics": m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="n")]),
    "CreatePartitions": m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5)]
    ),
    "DescribeGroups": m.DescribeGroupsRequest(groups=["g"]),
    "DeleteGroups": m.DeleteGroupsRequest(groups_names=["g"]),
    "DescribeConfigs": m.DescribeConfigsRequest(
        resources=[
            m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
        ]
    ),
    "Heartbeat": HEARTBEAT,
    "JoinGroup": m.JoinGroupRequest(group_id="g"),
    "SyncGroup": m.SyncGroupRequest(group_id="g"),
    "LeaveGroup": m.LeaveGroupRequest(group_id="g"),
    "InitProducerId": m.InitProducerIdRequest(),
    "ListGroups": m.ListGroupsRequest(),
}

VERSIONS = {"Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}


@pytest.mark.parametrize("api", ASKED)
def test_an_error_is_told_where_the_api_tells_it(cluster: Cluster, raw: Raw, api: str) -> None:
    request = ASKED[api]
    version = VERSIONS.get(api, SERVED[request.api_key].versions.last)
    cluster.fail(api, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert "error_code=31" in repr(raw.ask(request, version))
    assert cluster.records("t") == []
    assert cluster.topics == {"t": 2}, "nothing is carried out"


def test_old_versions_tell_it_too(cluster: Cluster, raw: Raw) -> None:
    cluster.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert raw.ask(m.FindCoordinatorRequest(key="g"), 0).error_code == 15
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    asked = m.OffsetFetchRequest(group_id="g", topics=[topic])
    cluster.fail("OffsetFetch", ErrorCode.NOT_COORDINATOR, times=2)
    assert raw.ask(asked, 5).error_code == 16
    assert raw.ask(asked, 1).topics[0].partitions[0].error_code == 16
    cluster.fail("DeleteTopics", ErrorCode.NOT_CONTROLLER)
    answer = raw.ask(m.DeleteTopicsRequest(topic_names=["t"]), 3)
    assert (answer.responses[0].name, answer.responses[0].error_code) == ("t", 41)


def test_a_fetch_session_learns_of_errors_and_goes_on() -> None:
    with Cluster(topics={"t": 2}) as cluster, consumer(cluster) as reader:
        cluster.produce("t", ["a"], partition=0)
        assert read(reader, 1) == [b"a"]
        fault = cluster.fail("Fetch", ErrorCode.LEADER_NOT_AVAILABLE, times=3)
        cluster.wait_until(lambda: reader.poll(timeout_ms=20) == {} and fault.hits == 3)
        cluster.produce("t", ["b"], partition=1)
        assert read(reader, 1) == [b"b"]


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("JoinGroup", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("SyncGroup", ErrorCode.REBALANCE_IN_PROGRESS),
        ("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("Metadata", ErrorCode.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_consumer_gets_over_errors_that_pass(api: str, error: ErrorCode) -> None:
    with Cluster(topics={"t": 2}) as cluster:
        cluster.produce("t", ["a", "b"])
        fault = cluster.fail(api, error, times=2)
        with consumer(cluster) as reader:
            assert sorted(read(reader, 2)) == [b"a", b"b"]
            assert fault.hits == 2


def test_a_failed_join_has_no_protocol(cluster: Cluster, raw: Raw) -> None:
    cluster.fail("JoinGroup", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    answer = raw.ask(m.JoinGroupRequest(group_id="g", member_id="m"), 9)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (answer.member_id, answer.protocol_name) == ("", None)


# Time and connections


def test_delayed_requests_take_their_time(cluster: Cluster, raw: Raw) -> None:
    cluster.delay("Metadata", (0.1, 0.12), times=1)
    started = time.monotonic()
    raw.ask(METADATA, 8)
    assert time.monotonic() - started >= 0.1


def test_a_commit_whose_answer_is_lost_is_a_commit(cluster: Cluster, raw: Raw) -> None:
    find_coordinator(raw)
    request = m.OffsetCommitRequest(
        group_id="g",
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=5
                    )
                ],
            )
        ],
    )
    cluster.disconnect("OffsetCommit", after=True)
    raw.send(request, 8)
    assert raw.is_closed()
    assert cluster.committed("g")[TopicPartition("t", 0)].offset == 5


def test_a_consumer_gets_over_connections_that_break() -> None:
    with Cluster(topics={"t": 1}) as cluster:
        cluster.produce("t", [f"{n}" for n in range(50)])
        fault = cluster.disconnect(None, times=None, chance=0.15)
        with consumer(cluster, max_poll_records=5, reconnect_backoff_ms=10) as reader:
            assert len(set(read(reader, 50))) == 50
            cluster.wait_until(lambda: reader.poll(timeout_ms=20) == {} and fault.hits > 0)
            fault.stop()


def test_a_request_hangs_until_the_fault_is_over(cluster: Cluster, raw: Raw) -> None:
    fault = cluster.hang("Metadata")
    raw.send(METADATA, 8)
    cluster.wait_until(lambda: fault.hits == 1)
    assert not raw.has_answer(0.05)
    with Raw(cluster) as other:
        assert other.ask(HEARTBEAT, 4).error_code == ErrorCode.NOT_COORDINATOR
    fault.stop()
    fault.stop()
    assert raw.is_closed()


def test_network_partition_holds_messages_in_both_directions(cluster: Cluster, raw: Raw) -> None:
    waiting = m.FetchRequest(
        max_wait_ms=20_000,
        min_bytes=1,
        topics=[
            m.FetchRequest.FetchTopic(
                topic="t",
                partitions=[m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=99)],
            )
        ],
    )
    raw.send(waiting, 12)
    cluster.wait_until(lambda: cluster.requests)
    with cluster.network_partition(client_id="raw") as cut, Raw(cluster) as other:
        cluster.produce("t", ["x"], partition=0)
        other.send(HEARTBEAT, 4)
        cluster.wait_until(lambda: cut.hits == 1)
        assert not raw.has_answer(0.05), "earlier requests get no response"
        assert not other.has_answer(0.05)
        with Raw(cluster) as third:
            assert third.ask(HEARTBEAT, 4, "else").error_code != 0
        cut.stop()
        assert raw.receive()[0] == other.receive()[0] == 1


def test_a_member_that_is_cut_off_loses_its_place_and_comes_back() -> None:
    settings = {"min_session_timeout_ms": 100}
    with Cluster(topics={"t": 2}, group_settings=settings) as cluster:
        cluster.produce("t", ["a", "b"])
        with consumer(
            cluster, client_id="cut", session_timeout_ms=3_000, request_timeout_ms=4_000
        ) as reader:
            assert len(read(reader, 2)) == 2
            reader.commit()
            with cluster.network_partition(client_id="cut"):
                cluster.wait_until(lambda: cluster.group("g").state == "Empty", 90)
            cluster.produce("t", ["c", "d"])
            # The member reads records again that it fetched before it knew of its eviction.
            seen, deadline = set(read(reader, 2)), time.monotonic() + 90
            while seen != {b"c", b"d"} or cluster.group("g").state != "Stable":
                assert time.monotonic() < deadline, f"not in time; read {seen}"
                for part in reader.poll(timeout_ms=100).values():
                    seen |= {record.value or b"" for record in part}


def test_answers_in_small_pieces_are_answers(cluster: Cluster, raw: Raw) -> None:
    whole = raw.ask(METADATA, 8)
    with cluster.slow(piece=3):
        assert raw.ask(METADATA, 8) == whole
    with cluster.slow(2_000, piece=50):
        started = time.monotonic()
        assert raw.ask(METADATA, 8) == whole
        assert time.monotonic() - started > 0.03
    with cluster.slow(piece=7), consumer(cluster) as reader:
        cluster.produce("t", ["a", "b"])
        assert sorted(read(reader, 2)) == [b"a", b"b"]


# Damage


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_records_are_told_and_repaired(how: str) -> None:
    with Cluster(topics={"t": 1}) as cluster:
        for value in ("a", "b", "c"):
            cluster.produce("t", [value])
        fault = cluster.corrupt(TopicPartition("t", 0), 1, how)
        with consumer(cluster, group_id=None) as reader:
            assert read(reader, 1) == [b"a"]
            with pytest.raises((CorruptBatchError, RecordTooLargeError)) as raised:
                read(reader, 1)
            assert "t-0" in str(raised.value) and "offset 1" in str(raised.value)
            fault.stop()
            reader.seek(TopicPartition("t", 0), 1)
            assert read(reader, 2) == [b"b", b"c"]


def test_every_served_api_can_fail_or_reports_that_it_cannot(cluster: Cluster) -> None:
    for key in SERVED:
        try:
            cluster.fail(int(key), ErrorCode.UNKNOWN_SERVER_ERROR).stop()
        except InvalidOptionError as error:
            assert "on()" in str(error)
            assert APIS[key].name == "DescribeTopicPartitions"
