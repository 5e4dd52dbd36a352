"""Admin APIs: changed configs, deleted offsets, and descriptions."""

from __future__ import annotations

import pytest

from kohort.broker.configs._topic_settings import config_error
from kohort.protocol.messages import (
    AlterConfigsRequest,
    ConsumerGroupDescribeRequest,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListPartitionReassignmentsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
)
from kohort.testing import Cluster
from kohort.types import TopicPartition
from tests.broker.raw import Raw, find_coordinator, join

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def own_settings(cluster: Cluster, topic: str = "t") -> dict[str, str]:
    return cluster._call(lambda server: dict(server.state.topics._by_name[topic].configs))


def alter(raw: Raw, values: dict[str, str | None], topic: str = "t", kind: int = TOPIC) -> int:
    asked = AlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=topic,
        configs=[AlterConfigsRequest.AlterableConfig(name=n, value=v) for n, v in values.items()],
    )
    return raw.ask(AlterConfigsRequest(resources=[asked]), 2).responses[0].error_code


def change(raw: Raw, *changes: tuple[int, str, str | None], topic: str = "t") -> int:
    asked = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=name, config_operation=operation, value=value
            )
            for operation, name, value in changes
        ],
    )
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[asked]), 1)
    return answer.responses[0].error_code


def test_alter_replaces_all_settings_of_a_topic(cluster: Cluster, raw: Raw) -> None:
    assert alter(raw, {"retention.ms": "5", "cleanup.policy": "compact"}) == 0
    assert alter(raw, {"retention.ms": "7"}) == 0
    assert own_settings(cluster) == {"retention.ms": "7"}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"no.such.thing": "1"}, 40),
        ({"retention.ms": "5", "cleanup.policy": "burn"}, 40),
        ({"retention.ms": None}, 42),
    ],
)
def test_a_change_that_is_refused_changes_nothing(
    cluster: Cluster, raw: Raw, values: dict[str, str | None], error: int
) -> None:
    assert alter(raw, values) == error
    assert own_settings(cluster) == {}


def test_only_topics_and_brokers_have_settings_that_change(raw: Raw) -> None:
    assert alter(raw, {}, "none") == 3
    assert alter(raw, {}, "1", BROKER) == 0
    assert alter(raw, {}, "2", BROKER) == 42
    assert alter(raw, {}, "x", 77) == 42


def test_single_settings_are_set_and_deleted(cluster: Cluster, raw: Raw) -> None:
    assert change(raw, (SET, "retention.ms", "5"), (SET, "segment.bytes", "2000000")) == 0
    assert change(raw, (DELETE, "retention.ms", None)) == 0
    assert own_settings(cluster) == {"segment.bytes": "2000000"}


def test_lists_are_appended_to_and_taken_from(cluster: Cluster, raw: Raw) -> None:
    assert change(raw, (APPEND, "cleanup.policy", "compact")) == 0
    assert own_settings(cluster) == {"cleanup.policy": "delete,compact"}
    assert change(raw, (SUBTRACT, "cleanup.policy", "delete")) == 0
    assert own_settings(cluster) == {"cleanup.policy": "compact"}
    assert change(raw, (APPEND, "retention.ms", "5")) == 40
    assert change(raw, (SET, "retention.ms", "5"), (DELETE, "retention.ms", None)) == 42
    assert change(raw, (9, "retention.ms", "5")) == -1


def test_a_changed_setting_counts_at_once(cluster: Cluster, raw: Raw) -> None:
    assert change(raw, (SET, "message.timestamp.type", "LogAppendTime")) == 0
    cluster.produce("t", ["x"])
    assert cluster.records("t")[0].timestamp_type == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("segment.bytes", "100"),
        ("segment.bytes", "9999999999"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "yes"),
        ("message.timestamp.type", "CreateTime,LogAppendTime"),
    ],
)
def test_values_that_no_setting_has(name: str, value: str) -> None:
    assert config_error(name, value) is not None


def offset_delete(raw: Raw, *places: tuple[str, int]) -> tuple[int, dict[tuple[str, int], int]]:
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)],
        )
        for name, index in places
    ]
    answer = raw.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    return answer.error_code, {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics
        for part in topic.partitions
    }


def commit(raw: Raw, generation: int = -1, member_id: str = "") -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[topic],
    )
    assert raw.ask(request, 8).topics[0].partitions[0].error_code == 0


def test_an_empty_group_lets_go_of_any_offset(cluster: Cluster, raw: Raw) -> None:
    find_coordinator(raw)
    assert offset_delete(raw, ("t", 0)) == (69, {})
    commit(raw)
    answer = offset_delete(raw, ("t", 0), ("t", 9), ("none", 0))
    assert answer == (0, {("none", 0): 3, ("t", 9): 3, ("t", 0): 0})
    assert cluster.committed("g") == {}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (bytes(6) + bytes(4), 0),
        (bytes(5) + b"\1" + b"\0\1t" + bytes(4), 86),
        (b"m", 86),
    ],
    ids=["no topics", "subscribed", "nobody can read it"],
)
def test_a_living_group_lets_go_of_what_it_is_not_subscribed_to(
    cluster: Cluster, raw: Raw, metadata: bytes, error: int
) -> None:
    find_coordinator(raw)
    commit(raw)
    join(raw, metadata=metadata)
    assert TopicPartition("t", 0) in cluster.committed("g")
    assert offset_delete(raw, ("t", 0)) == (0, {("t", 0): error})


def test_a_classic_group_is_no_consumer_group(raw: Raw) -> None:
    join(raw)
    answer = raw.ask(ConsumerGroupDescribeRequest(group_ids=["g", "none", ""]), 1)
    assert [group.error_code for group in answer.groups] == [69, 69, 24]


def test_log_directories_tell_the_sizes_of_partitions(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", ["x"], partition=1)
    (folder,) = raw.ask(DescribeLogDirsRequest(topics=None), 5).results
    sizes = {p.partition_index: p.partition_size for t in folder.topics for p in t.partitions}
    assert sizes[0] == 0 < sizes[1]


def test_the_quorum_is_that_of_the_brokers() -> None:
    with Cluster(brokers=3) as cluster, Raw(cluster, 2) as raw:
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(
            topic_name="__cluster_metadata", partitions=[partition]
        )
        answer = raw.ask(DescribeQuorumRequest(topics=[topic]), 2)
        quorum = answer.topics[0].partitions[0]
        assert quorum.leader_id == 1
        assert {voter.replica_id for voter in quorum.current_voters} == {1, 2, 3}
        assert {node.node_id for node in answer.nodes} == {1, 2, 3}


def test_topics_and_brokers_have_settings(raw: Raw) -> None:
    answer = raw.ask(ListConfigResourcesRequest(resource_types=[TOPIC, BROKER]), 1)
    found = {(one.resource_type, one.resource_name) for one in answer.config_resources}
    assert found == {(TOPIC, "t"), (BROKER, "1")}
    assert raw.ask(ListConfigResourcesRequest(resource_types=[99]), 1).error_code == 35


def test_nothing_is_being_moved(raw: Raw) -> None:
    assert raw.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
