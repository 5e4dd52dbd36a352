"""Broker configs of the in-process cluster: given, checked, in effect and described."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
)
from kohort.testing import Cluster, MemoryCluster
from kohort.types import TopicPartition
from tests.broker.raw import Raw

TOPIC, BROKER = 2, 4
PREFERRED, ANY = 0, 1
Described = dict[str, DescribeConfigsResponse.DescribeConfigsResourceResult]


def described(raw: Raw, kind: int, name: str) -> Described:
    """Return all configs of a topic or a broker."""
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    answer = raw.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4)
    return {config.name: config for config in answer.results[0].configs}


def set_config(raw: Raw, broker: str, name: str, value: str) -> int:
    """Change one config of a broker, "" for all. Return the error code."""
    cls = IncrementalAlterConfigsRequest
    entry = cls.AlterableConfig(name=name, config_operation=0, value=value)
    asked = cls.AlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[entry])
    return raw.ask(cls(resources=[asked]), 1).responses[0].error_code


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("group.min.session.timeout", "5", "did you mean group.min.session.timeout.ms?"),
        ("group_min_session_timeout_ms", "5", "did you mean group.min.session.timeout.ms?"),
        ("zzz", "5", "(?m)brokers have no config 'zzz'$"),
        ("num.partitions", "many", "'many' is not a whole number of 32 bits of at least 1"),
        ("num.partitions", "0", "'0' is not a whole number"),
        ("offsets.topic.replication.factor", "40000", "of 16 bits"),
        ("auto.create.topics.enable", "yes", "'yes' is not true or false"),
        ("log.cleanup.policy", "burn", "is not one of compact, delete"),
        ("compression.gzip.level", "10", "from -1 to 9"),
        ("log.segment.bytes", "1", "of at least 1048576"),
        ("listeners", "PLAINTEXT://:9092", "set by host and ports"),
        ("broker.id", "3", "set by node.id"),
    ],
)
def test_a_broker_config_is_refused_when_it_cannot_be(
    name: str, value: str, complaint: str
) -> None:
    with pytest.raises(InvalidOptionError, match=complaint):
        Cluster(configs={name: value})
    with pytest.raises(InvalidOptionError, match=complaint):
        MemoryCluster(configs={name: value})


def test_a_broker_config_is_refused_beside_its_parameter() -> None:
    with pytest.raises(InvalidOptionError, match="contradicts default_partitions=2"):
        Cluster(default_partitions=2, configs={"num.partitions": 3})
    Cluster(default_partitions=2, configs={"num.partitions": 2})


def test_a_secret_is_not_in_the_error_of_its_config() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        Cluster(configs={"sasl.jaas.confg": "secret"})
    assert "secret" not in str(raised.value)


def test_broker_configs_decide_how_topics_are_made() -> None:
    configs = {"num.partitions": 3, "log.retention.hours": 2, "log.message.timestamp.type": "x"}
    configs["log.message.timestamp.type"] = "LogAppendTime"
    with Cluster(topics={"given": None}, configs=configs) as cluster, Raw(cluster) as raw:
        cluster.produce("made", ["value"])
        assert cluster.topics == {"given": 3, "made": 3}
        shown = described(raw, TOPIC, "made")
    assert shown["retention.ms"].value == "7200000"
    assert shown["message.timestamp.type"].value == "LogAppendTime"
    assert shown["message.timestamp.type"].config_source == 4


def test_brokers_are_numbered_from_node_id_on() -> None:
    with Cluster(brokers=2, topics={"t": 2}, configs={"node.id": 0}) as cluster:
        assert cluster.live_brokers == [0, 1]
        port = cluster.bootstrap_servers
        cluster.kill_broker(0)
        cluster.start_broker(0)
        assert cluster.bootstrap_servers == port
        with Raw(cluster) as raw:
            assert described(raw, BROKER, "0")["node.id"].value == "0"


def test_a_broker_describes_its_listener_and_its_rack() -> None:
    with Cluster(brokers=2, racks=["a", "b"], advertised_host="localhost") as cluster:
        with Raw(cluster, 2) as raw:
            shown = described(raw, BROKER, "2")
        address = cluster.bootstrap_servers.split(",")[1]
    assert shown["advertised.listeners"].value == f"PLAINTEXT://{address}"
    assert shown["advertised.listeners"].config_source == 4
    assert shown["advertised.listeners"].read_only
    assert shown["broker.rack"].value == "b"
    assert shown["ssl.key.password"].is_sensitive
    assert len(shown) == 350


def test_a_given_secret_is_described_without_its_value() -> None:
    with Cluster(configs={"ssl.key.password": "secret"}) as cluster, Raw(cluster) as raw:
        shown = described(raw, BROKER, "1")["ssl.key.password"]
    assert shown.value is None
    assert [synonym.value for synonym in shown.synonyms] == [None]
    assert shown.config_source == 4


def test_a_changed_broker_config_holds_for_topics_at_once() -> None:
    with Cluster(topics={"t": 1}) as cluster, Raw(cluster) as raw:
        assert set_config(raw, "", "log.cleanup.policy", "compact") == 0
        cluster.produce("t", [("key", "1"), ("key", "2"), ("other", "3")])
        cluster.produce("t", ["last"], key="end")
        cluster.compact("t")
        assert [record.value for record in cluster.records("t")] == [b"2", b"3", b"last"]
        assert set_config(raw, "", "num.partitions", "3") == ErrorCode.INVALID_REQUEST


def _elect(raw: Raw, kind: int) -> list[ElectLeadersResponse.PartitionResult]:
    wanted = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    answer = raw.ask(ElectLeadersRequest(election_type=kind, topic_partitions=wanted), 2)
    return answer.replica_election_results[0].partition_result


def test_the_preferred_replica_leads_after_its_election() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        preferred = cluster.leader("t")
        other = cluster.move_leader("t")
        with Raw(cluster) as raw:
            assert _elect(raw, ANY)[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
            assert _elect(raw, PREFERRED)[0].error_code == 0
            assert cluster.leader("t") == preferred != other
            assert _elect(raw, PREFERRED)[0].error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_a_preferred_replica_that_is_down_is_not_elected() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        preferred = cluster.leader("t")
        other = cluster.move_leader("t")
        cluster.kill_broker(preferred)
        with Raw(cluster, other) as raw:
            code = _elect(raw, PREFERRED)[0].error_code
        assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_an_unclean_election_gives_a_partition_a_leader() -> None:
    with Cluster(brokers=2, topics={"t": 1}, broker_session_timeout_ms=0) as cluster:
        leader = cluster.leader("t")
        follower = 3 - leader
        with cluster.lag(TopicPartition("t", 0), follower):
            cluster.kill_broker(leader)
            cluster.wait_until(lambda: cluster.leader("t") == -1)
            with Raw(cluster, follower) as raw:
                assert _elect(raw, ANY)[0].error_code == 0
            assert cluster.leader("t") == follower


def test_a_reassigned_partition_is_led_by_its_new_replicas() -> None:
    cls = AlterPartitionReassignmentsRequest
    with Cluster(brokers=3, topics={"t": 1}, replication_factor=1) as cluster:
        cluster.produce("t", ["one", "two"])
        leader, epoch = cluster.leader("t"), cluster.leader_epoch("t")
        new = [node for node in (1, 2, 3) if node != leader]
        moved = cls.ReassignableTopic(
            name="t", partitions=[cls.ReassignablePartition(partition_index=0, replicas=new)]
        )
        with Raw(cluster) as raw:
            refused = raw.ask(cls(topics=[moved], allow_replication_factor_change=False), 1)
            code = refused.responses[0].partitions[0].error_code
            assert code == ErrorCode.INVALID_REPLICATION_FACTOR
            done = raw.ask(cls(topics=[moved]), 1)
            assert done.responses[0].partitions[0].error_code == 0
        assert (cluster.leader("t"), cluster.leader_epoch("t")) == (new[0], epoch + 1)
        assert [record.value for record in cluster.records("t")] == [b"one", b"two"]
