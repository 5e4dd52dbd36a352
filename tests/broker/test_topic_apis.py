"""Metadata, offsets by time, and the administration of topics."""

from __future__ import annotations

import pytest

from kohort.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeTopicPartitionsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
)
from kohort.testing import Cluster, ProducerRecord
from tests.broker.raw import Raw, find_coordinator


def asked(*names: str) -> list[MetadataRequest.MetadataRequestTopic]:
    return [MetadataRequest.MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(raw: Raw, version: int) -> None:
    everything = raw.ask(MetadataRequest(topics=None if version else []), version)
    assert [broker.node_id for broker in everything.brokers] == [1]
    (topic,) = everything.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]
    if version >= 1:
        assert everything.controller_id == 1
        assert raw.ask(MetadataRequest(topics=[]), version).topics == []
    if version >= 2:
        assert everything.cluster_id is not None
        assert len(everything.cluster_id) == 22
    if version >= 10:
        assert bytes(topic.topic_id) != bytes(16)


def test_topics_are_made_on_first_use_unless_told_not_to(cluster: Cluster, raw: Raw) -> None:
    refused = MetadataRequest(topics=asked("new"), allow_auto_topic_creation=False)
    assert raw.ask(refused, 12).topics[0].error_code == 3
    first = raw.ask(MetadataRequest(topics=asked("new")), 12).topics[0]
    assert first.error_code == 3, "it is only being made"
    made = raw.ask(MetadataRequest(topics=asked("new")), 12).topics[0]
    assert (made.error_code, len(made.partitions)) == (0, 1)
    assert cluster.topics == {"t": 2, "new": 1}
    assert raw.ask(MetadataRequest(topics=asked("bad topic!", "")), 12).topics[0].error_code == 17
    with Cluster(auto_create_topics=False) as other, Raw(other) as connection:
        assert connection.ask(MetadataRequest(topics=asked("new")), 12).topics[0].error_code == 3


def test_topics_are_found_by_id(raw: Raw) -> None:
    known = raw.ask(MetadataRequest(topics=None), 12).topics[0].topic_id
    by_id = [
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=bytes(known)),
        MetadataRequest.MetadataRequestTopic(name=None, topic_id=b"x" * 16),
    ]
    found, unknown = raw.ask(MetadataRequest(topics=by_id), 12).topics
    assert (found.name, found.error_code) == ("t", 0)
    assert (unknown.name, unknown.error_code) == (None, 100)


def test_operations_are_told_when_asked_for(raw: Raw) -> None:
    request = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = raw.ask(request, 9)
    assert response.cluster_authorized_operations == 8096
    assert response.topics[0].topic_authorized_operations == 3576


def test_leaders_are_spread_over_the_brokers() -> None:
    with Cluster(brokers=3, topics={"a": 6, "b": 3}) as cluster, Raw(cluster) as raw:
        response = raw.ask(MetadataRequest(topics=None), 12)
        assert len({(b.host, b.port) for b in response.brokers}) == 3
        for topic in response.topics:
            leaders = [p.leader_id for p in topic.partitions]
            assert {leaders.count(node) for node in (1, 2, 3)} == {len(leaders) // 3}
            assert all(len(p.replica_nodes) == 3 for p in topic.partitions)


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(raw: Raw, version: int) -> None:
    response = raw.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id) == (0, 1)
    assert [broker.broker_id for broker in response.brokers] == [1]
    if version:
        controllers = DescribeClusterRequest(endpoint_type=2)
        assert raw.ask(controllers, version).error_code == 114


def describe(*names: str, limit: int = 2000) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
    )


def test_partitions_are_described_a_page_at_a_time(cluster: Cluster, raw: Raw) -> None:
    cluster.create_topic("a", 5)
    seen = []
    request = describe(limit=3)
    for _ in range(10):
        response = raw.ask(request, 0)
        seen += [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
        if response.next_cursor is None:
            break
        request.cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=response.next_cursor.topic_name,
            partition_index=response.next_cursor.partition_index,
        )
    assert seen == [("a", n) for n in range(5)] + [("t", 0), ("t", 1)]
    unknown, found, bad = raw.ask(describe("t", "nosuch", "z!"), 0).topics
    assert [topic.error_code for topic in (unknown, found, bad)] == [3, 0, 17]


def list_offsets(raw: Raw, timestamp: int, version: int = 11, epoch: int = -1) -> tuple[int, ...]:
    """Return error, timestamp, offset and epoch of partition 0."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
        ],
    )
    one = raw.ask(request, version).topics[0].partitions[0]
    return one.error_code, one.timestamp, one.offset, one.leader_epoch


def with_times(cluster: Cluster, raw: Raw) -> None:
    """Produce offsets 0-4 with the times 10, 30, 20, 50, 40. The log starts at 2 afterwards."""
    for timestamp in (10, 30, 20, 50, 40):
        cluster.produce("t", [ProducerRecord("x", timestamp=timestamp, partition=0)])
    delete_records(raw, 2)


def delete_records(raw: Raw, offset: int, version: int = 2) -> tuple[int, int]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(offset=offset)]
            )
        ]
    )
    one = raw.ask(request, version).topics[0].partitions[0]
    return one.error_code, one.low_watermark


def test_offsets_by_time(cluster: Cluster, raw: Raw) -> None:
    with_times(cluster, raw)
    assert list_offsets(raw, -1) == (0, -1, 5, 0)
    assert list_offsets(raw, -2) == (0, -1, 2, 0)
    assert list_offsets(raw, -3) == (0, 50, 3, 0)
    assert list_offsets(raw, -4) == (0, -1, 2, 0)
    assert list_offsets(raw, -5) == list_offsets(raw, -6) == (0, -1, -1, -1)
    assert list_offsets(raw, -7) == (35, -1, -1, -1)
    assert list_offsets(raw, 0) == (0, 20, 2, 0)
    assert list_offsets(raw, 45) == (0, 50, 3, 0)
    assert list_offsets(raw, 99999999999999) == (0, -1, -1, -1)
    assert list_offsets(raw, -1, epoch=9)[0] == 75
    assert list_offsets(raw, -1, epoch=0)[0] == 0


@pytest.mark.parametrize("version", range(1, 12))
def test_special_times_have_their_versions(cluster: Cluster, raw: Raw, version: int) -> None:
    with_times(cluster, raw)
    assert list_offsets(raw, -1, version)[:3] == (0, -1, 5)
    for timestamp, since in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
        assert (list_offsets(raw, timestamp, version)[0] == 0) == (version >= since)


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(cluster: Cluster, raw: Raw, version: int) -> None:
    cluster.produce("t", ["x"] * 5, partition=0)
    assert delete_records(raw, 2, version) == (0, 2)
    assert [record.offset for record in cluster.records("t")] == [2, 3, 4]
    assert delete_records(raw, 9, version) == (1, -1)
    assert delete_records(raw, -1, version) == (0, 5)
    assert cluster.records("t") == []


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_an_epoch(cluster: Cluster, raw: Raw, version: int) -> None:
    cluster.produce("t", ["x"] * 3, partition=0)

    def end(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, ...]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=partition, current_leader_epoch=current, leader_epoch=epoch
                        )
                    ],
                )
            ]
        )
        one = raw.ask(request, version).topics[0].partitions[0]
        return one.error_code, one.leader_epoch, one.end_offset

    assert end(0) == (0, 0, 3)
    assert end(1) == (0, -1, -1)
    assert end(0, current=1)[0] == 75
    assert end(0, partition=5)[0] == 3


def creatable(
    name: str, partitions: int = 3, factor: int = 1, **configs: str | None
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created(cluster: Cluster, raw: Raw, version: int) -> None:
    request = CreateTopicsRequest(topics=[creatable("a", cleanup_policy="compact")])
    (one,) = raw.ask(request, version).topics
    assert (one.error_code, one.error_message) == (0, None)
    assert cluster.topics["a"] == 3
    if version >= 5:
        assert (one.num_partitions, one.replication_factor) == (3, 1)
        assert one.configs is not None
        shown = {config.name: (config.value, config.config_source) for config in one.configs}
        assert shown["cleanup.policy"] == ("compact", 1)
        assert shown["compression.type"] == ("producer", 5)
    if version >= 7:
        assert bytes(one.topic_id) != bytes(16)


def test_topics_that_cannot_be_created(cluster: Cluster, raw: Raw) -> None:
    request = CreateTopicsRequest(
        topics=[
            creatable("t"),
            creatable("bad name"),
            creatable("none", 0),
            creatable("many", 3, 5),
            creatable("config", unknown_thing="1"),
            creatable("value", retention_ms="soon"),
            creatable("null", retention_ms=None),
            creatable("twice"),
            creatable("twice"),
        ]
    )
    errors = [topic.error_code for topic in raw.ask(request, 7).topics]
    assert errors == [36, 17, 37, 38, 40, 40, 40, 42], (
        "one response for a topic that is named twice"
    )
    assert cluster.topics == {"t": 2}


def test_create_topics_only_validates_or_takes_replica_placement(
    cluster: Cluster, raw: Raw
) -> None:
    assert (
        raw.ask(CreateTopicsRequest(topics=[creatable("a", -1, -1)], validate_only=True), 7)
        .topics[0]
        .num_partitions
        == 1
    )
    assert "a" not in cluster.topics
    placed = creatable("b", -1, -1)
    placed.assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=n, broker_ids=[1])
        for n in range(2)
    ]
    assert raw.ask(CreateTopicsRequest(topics=[placed]), 7).topics[0].error_code == 0
    assert cluster.topics["b"] == 2
    placed.name = "c"
    placed.assignments[0].broker_ids = [9]
    assert raw.ask(CreateTopicsRequest(topics=[placed]), 7).topics[0].error_code == 39


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted(cluster: Cluster, raw: Raw, version: int) -> None:
    find_coordinator(raw)
    names = ["t", "nosuch", "__consumer_offsets"]
    states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    request = DeleteTopicsRequest(topic_names=names if version < 6 else [], topics=states)
    if version < 6:
        request.topics = []
    answer = [one.error_code for one in raw.ask(request, version).responses]
    assert answer == [0, 3, 42]
    assert cluster.topics == {}


def test_topics_are_deleted_by_id(cluster: Cluster, raw: Raw) -> None:
    known = bytes(raw.ask(MetadataRequest(topics=None), 12).topics[0].topic_id)
    states = [
        DeleteTopicsRequest.DeleteTopicState(topic_id=known),
        DeleteTopicsRequest.DeleteTopicState(topic_id=b"x" * 16),
        DeleteTopicsRequest.DeleteTopicState(),
    ]
    answer = raw.ask(DeleteTopicsRequest(topics=states), 6).responses
    assert [(one.name, one.error_code) for one in answer] == [("t", 0), (None, 100), (None, 42)]
    assert cluster.topics == {}


@pytest.mark.parametrize("version", range(4))
def test_topics_grow(cluster: Cluster, raw: Raw, version: int) -> None:
    def grow(name: str, count: int, *, validate_only: bool = False) -> int:
        topic = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=count, assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        return raw.ask(request, version).results[0].error_code

    assert grow("t", 2) == grow("t", 1) == grow("t", 1 << 30) == 37
    assert grow("nosuch", 2) == 3
    assert grow("t", 4, validate_only=True) == 0
    assert cluster.topics["t"] == 2
    assert grow("t", 4) == 0
    assert cluster.topics["t"] == 4
    cluster.produce("t", ["x"], partition=3)


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described(cluster: Cluster, raw: Raw, version: int) -> None:
    cluster.create_topic("a", configs={"cleanup.policy": "compact"})
    wanted = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        for kind, name, keys in ((2, "a", None), (2, "nosuch", None), (4, "1", ["num.partitions"]))
    ]
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=True)
    topic, unknown, broker = raw.ask(request, version).results
    shown = {config.name: config for config in topic.configs}
    assert len(shown) == 37
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("compact", 1)
    assert [s.value for s in shown["cleanup.policy"].synonyms] == ["compact", "delete"]
    assert unknown.error_code == 3
    assert [(config.name, config.value) for config in broker.configs] == [("num.partitions", "1")]
