"""Brokers in racks: the places of replicas, and the replicas that clients read by KIP-392."""

from __future__ import annotations

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol.messages import FetchRequest, FetchResponse, MetadataRequest
from kohort.testing import Cluster
from tests.broker.raw import Raw

RACKS = ["a", "b", "c"]
PLACE = TopicPartition("t", 0)


def fetch(
    cluster: Cluster,
    node: int,
    rack: str,
    offset: int = 0,
    *,
    version: int = 12,
    max_wait_ms: int = 0,
) -> FetchResponse.PartitionData:
    asked = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_epoch=-1,
        rack_id=rack,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])],
    )
    with Raw(cluster, node) as raw:
        return raw.ask(request, version).responses[0].partitions[0]


def test_the_leader_sends_clients_to_a_follower_in_their_rack() -> None:
    with Cluster(brokers=3, racks=RACKS, topics={"t": 1}) as cluster:
        cluster.produce("t", ["x"])
        redirected = fetch(cluster, 1, "b")
        assert (redirected.preferred_read_replica, redirected.records) == (2, b"")
        assert (redirected.error_code, redirected.high_watermark) == (ErrorCode.NONE, 1)
        assert redirected.aborted_transactions is None
        for rack in ("a", "", "nowhere"):
            here = fetch(cluster, 1, rack)
            assert here.preferred_read_replica == -1
            assert here.records
        followed = fetch(cluster, 2, "b")
        assert followed.preferred_read_replica == -1
        assert followed.records
        at_once = fetch(cluster, 1, "c", 1, max_wait_ms=60_000)
        assert at_once.preferred_read_replica == 3, (
            "it is not waited for records that are elsewhere"
        )
        assert fetch(cluster, 1, "c", 9).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_that_is_not_in_sync_is_not_read_from() -> None:
    with Cluster(
        brokers=3, racks=["a", "b", "b"], topics={"t": 1}, broker_session_timeout_ms=0
    ) as cluster:
        cluster.produce("t", ["x"])
        assert fetch(cluster, 1, "b").preferred_read_replica == 3
        lag = cluster.lag(PLACE, 3)
        assert fetch(cluster, 1, "b").preferred_read_replica == 2
        cluster.kill_broker(2)
        assert fetch(cluster, 1, "b").records
        lag.stop()
        assert fetch(cluster, 1, "b").preferred_read_replica == 3
        cluster.lag(PLACE, 3, in_sync=True)
        cluster.produce("t", ["y"])
        assert fetch(cluster, 1, "b", 2).preferred_read_replica == 3
        behind = fetch(cluster, 3, "b", 2)
        assert (behind.error_code, behind.high_watermark, behind.records) == (0, 1, b"")


def test_a_session_is_told_of_the_follower_each_time() -> None:
    with Cluster(brokers=3, racks=RACKS, topics={"t": 1}) as cluster, Raw(cluster, 1) as raw:
        asked = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[asked])
        first = raw.ask(FetchRequest(session_epoch=0, rack_id="b", topics=[topic]), 12)
        again = FetchRequest(session_id=first.session_id, session_epoch=1, rack_id="b")
        for answer in (first, raw.ask(again, 12)):
            (partition,) = answer.responses[0].partitions
            assert partition.preferred_read_replica == 2


def test_replicas_are_spread_over_the_racks() -> None:
    racks = ["a", "a", "b", "b"]
    with Cluster(brokers=4, racks=racks, topics={"t": 8}, replication_factor=2) as cluster:
        with Raw(cluster) as raw:
            answer = raw.ask(MetadataRequest(topics=None), 9)
        assert [broker.rack for broker in answer.brokers] == racks
        for partition in answer.topics[0].partitions:
            assert {racks[node - 1] for node in partition.replica_nodes} == {"a", "b"}


def test_each_broker_has_a_rack() -> None:
    with pytest.raises(InvalidOptionError, match="one rack each"):
        Cluster(brokers=2, racks=["a"])
