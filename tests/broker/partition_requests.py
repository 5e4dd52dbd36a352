"""Requests for one partition, and what the responses hold of it."""

from __future__ import annotations

from kohort.protocol.messages import (
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from kohort.records import NewRecord, encode_batch
from kohort.testing import Cluster
from tests.broker.raw import Raw


def fetch(
    cluster: Cluster,
    node: int,
    offset: int,
    *,
    epoch: int = -1,
    fetched: int = -1,
    version: int = 12,
    committed: bool = False,
) -> FetchResponse.PartitionData:
    """Return the response of one broker for the partition, without waiting."""
    asked = FetchRequest.FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=fetched,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        isolation_level=int(committed),
        topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])],
    )
    with Raw(cluster, node) as raw:
        return raw.ask(request, version).responses[0].partitions[0]


def end_of_epoch(cluster: Cluster, node: int, epoch: int, current: int = -1) -> tuple[int, ...]:
    """Return error, epoch and end offset."""
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[partition])
    with Raw(cluster, node) as raw:
        answer = raw.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 4)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


BATCH = encode_batch([NewRecord(1000, b"k", b"v")])


def produce_request(
    topic: str = "t",
    partition: int = 0,
    records: bytes | None = BATCH,
    *,
    acks: int = -1,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=partition, records=records)
                ],
            )
        ],
    )
