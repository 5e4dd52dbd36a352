"""Followers that lag: records lost by an unclean leader, and records that a follower serves."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode, IllegalStateError, UnknownTopicOrPartitionError
from kohort.protocol.messages import (
    FetchResponse,
    MetadataRequest,
    ProduceRequest,
)
from kohort.records import NewRecord, encode_batch, split_batches
from kohort.testing import Cluster
from kohort.types import TopicPartition
from tests.broker.partition_requests import end_of_epoch, fetch
from tests.broker.raw import Raw

PLACE = TopicPartition("t", 0)


def values(data: FetchResponse.PartitionData) -> list[bytes | None]:
    batches = split_batches(data.records or b"")
    return [record.value for batch in batches for record in batch.records()]


def isr(cluster: Cluster) -> tuple[list[int], list[int]]:
    """Return the replicas in sync and the offline ones."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
    with Raw(cluster, cluster.live_brokers[0]) as raw:
        partition = raw.ask(asked, 9).topics[0].partitions[0]
    return sorted(partition.isr_nodes), sorted(partition.offline_replicas)


def produce(cluster: Cluster, node: int, sequence: int, count: int = 1, epoch: int = 0) -> int:
    """Append a batch of an idempotent producer and return the error code."""
    batch = encode_batch(
        [NewRecord(1_000, None, b"p")] * count,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    with Raw(cluster, node) as raw:
        answer = raw.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    return answer.responses[0].partition_responses[0].error_code


def test_an_unclean_leader_lacks_the_last_records() -> None:
    with Cluster(brokers=3, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a", "b"])
        cluster.lag(PLACE, 2)
        cluster.produce("t", ["lost"])
        cluster.produce("t", ["lost too"])
        assert isr(cluster) == ([1, 3], [])
        assert cluster.move_leader("t") == 3, "never by itself to one that is not in sync"
        assert cluster.move_leader("t", to=2) == 2
        assert [record.value for record in cluster.records("t")] == [b"a", b"b"]
        assert isr(cluster) == ([1, 2, 3], []), "the others cut off the same"
        assert end_of_epoch(cluster, 2, 0) == (0, 0, 2)
        assert end_of_epoch(cluster, 2, 1) == (0, 0, 2), "of epoch 1 nothing is left"
        assert end_of_epoch(cluster, 2, 2) == (0, 2, 2)
        assert fetch(cluster, 2, 4, epoch=2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        cluster.produce("t", ["c"])
        assert [(r.offset, r.value) for r in cluster.records("t")][2:] == [(2, b"c")]
        assert end_of_epoch(cluster, 2, 2) == (0, 2, 3)
        diverged = fetch(cluster, 2, 4, epoch=2, fetched=0)
        assert (diverged.error_code, diverged.records) == (0, b"")
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)


def test_what_was_read_before_it_was_cut_off_stays_what_it_was() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a"])
        cluster.lag(PLACE, 2)
        cluster.produce("t", ["lost"])
        before = cluster.records("t")
        cluster.move_leader("t", to=2)
        cluster.produce("t", ["kept"])
        assert [record.value for record in before] == [b"a", b"lost"]
        assert [record.value for record in cluster.records("t")] == [b"a", b"kept"]


def test_epochs_are_compared_before_it_is_asked_who_leads() -> None:
    with Cluster(brokers=3, topics={"t": 1}, replication_factor=2) as cluster:
        cluster.produce("t", ["a"])
        cluster.move_leader("t", to=2)
        assert end_of_epoch(cluster, 1, 0, 0)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert end_of_epoch(cluster, 1, 0, 5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert end_of_epoch(cluster, 1, 0, 1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end_of_epoch(cluster, 3, 0, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        fenced = fetch(cluster, 1, 0, epoch=0)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert fetch(cluster, 1, 0, epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert fetch(cluster, 1, 0, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch(cluster, 3, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_a_producer_wrote_is_forgotten_with_its_records() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        assert produce(cluster, 1, 0, 2) == ErrorCode.NONE
        cluster.lag(PLACE, 2)
        assert produce(cluster, 1, 2) == ErrorCode.NONE
        cluster.move_leader("t", to=2)
        assert produce(cluster, 2, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(cluster, 2, 2) == ErrorCode.NONE, "not taken for a duplicate"
        assert [record.offset for record in cluster.records("t")] == [0, 1, 2]


@pytest.mark.parametrize("unclean", ["false", "true"])
def test_the_topic_says_whether_one_that_lags_may_lead(unclean: str) -> None:
    with Cluster(brokers=2, broker_session_timeout_ms=0) as cluster:
        cluster.create_topic("t", 1, {"unclean.leader.election.enable": unclean})
        cluster.produce("t", ["a"])
        lag = cluster.lag(PLACE, 2)
        cluster.produce("t", ["b"])
        cluster.kill_broker(1)
        if unclean == "true":
            assert cluster.leader("t") == 2
            assert isr(cluster) == ([2], [1])
            cluster.start_broker(1)
            assert isr(cluster) == ([1, 2], [])
            assert [record.value for record in cluster.records("t")] == [b"a"]
        else:
            assert cluster.leader("t") == -1
            cluster.start_broker(1)
            assert cluster.leader("t") == 1
            assert isr(cluster) == ([1], [])
            lag.stop()
            assert isr(cluster) == ([1, 2], [])
            assert [record.value for record in cluster.records("t")] == [b"a", b"b"]


def test_a_follower_lets_read_what_it_knows_to_be_committed() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a"])
        lag = cluster.lag(PLACE, 2)
        cluster.produce("t", ["b"])
        assert values(fetch(cluster, 1, 0)) == [b"a", b"b"]
        behind = fetch(cluster, 2, 0)
        assert (values(behind), behind.high_watermark) == ([b"a"], 1)
        assert values(fetch(cluster, 2, 0, committed=True)) == [b"a"]
        assert fetch(cluster, 2, 1).records == b""
        assert fetch(cluster, 2, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        lag.stop()
        assert values(fetch(cluster, 2, 0)) == [b"a", b"b"]


def test_a_follower_in_sync_may_believe_less_committed_than_is() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:
        cluster.produce("t", ["a"])
        cluster.lag(PLACE, 2, in_sync=True)
        cluster.produce("t", ["b"])
        assert isr(cluster) == ([1, 2], [])
        behind = fetch(cluster, 2, 2)
        assert (behind.error_code, behind.high_watermark, behind.records) == (0, 1, b"")
        assert values(fetch(cluster, 2, 0)) == [b"a"]
        assert cluster.move_leader("t") == 2
        assert values(fetch(cluster, 2, 0)) == [b"a", b"b"], "nothing is lost"


def test_all_acknowledgements_need_replicas_enough() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t", 1, {"min.insync.replicas": "2"})
        lag = cluster.lag(PLACE, 2)
        assert produce(cluster, 1, 0) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.records("t") == []
        lag.stop()
        assert produce(cluster, 1, 0) == ErrorCode.NONE


def test_what_cannot_lag_is_said() -> None:
    with Cluster(brokers=3, topics={"t": 1}, replication_factor=2) as cluster:
        with pytest.raises(IllegalStateError, match="does not follow"):
            cluster.lag(PLACE, 1)
        with pytest.raises(IllegalStateError, match="does not follow"):
            cluster.lag(PLACE, 3)
        with pytest.raises(UnknownTopicOrPartitionError):
            cluster.lag(TopicPartition("t", 9), 1)
