"""Fetch, API key 1: read record batches from partitions, with an optional wait for them.

- Version 7 adds fetch sessions (KIP-227).
- Version 11 adds the closest replica (KIP-392).
- Version 12 adds diverging epochs (KIP-595).
- Version 13 adds topic ids (KIP-516).
- Version 16 adds the new leader to the response (KIP-951).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


class FetchResponse(Response, api_key=1, versions="4-18", flexible="12+"):
    """Response to :class:`FetchRequest`."""

    class FetchableTopicResponse(Struct):
        topic: String = field("4-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchResponse.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        high_watermark: Int64 = field(default=0)
        last_stable_offset: Int64 = field(default=-1, ignorable=True)
        log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            "12+", tag=0, default_factory=lambda: FetchResponse.EpochEndOffset()
        )
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            "12+", tag=1, default_factory=lambda: FetchResponse.LeaderIdAndEpoch()
        )
        snapshot_id: FetchResponse.SnapshotId = field(
            "12+", tag=2, default_factory=lambda: FetchResponse.SnapshotId()
        )
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(
            nullable="4+", default_factory=list, ignorable=True
        )
        preferred_read_replica: Int32 = field("11+", default=-1)
        records: Records | None = field(nullable="0+", default=None)

    class EpochEndOffset(Struct):
        epoch: Int32 = field("12+", default=-1)
        end_offset: Int64 = field("12+", default=-1)

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field("12+", default=-1)
        leader_epoch: Int32 = field("12+", default=-1)

    class SnapshotId(Struct):
        end_offset: Int64 = field(default=-1)
        epoch: Int32 = field(default=-1)

    class AbortedTransaction(Struct):
        producer_id: Int64 = field(default=0)
        first_offset: Int64 = field(default=0)

    class NodeEndpoint(Struct):
        node_id: Int32 = field("16+", default=0)
        host: String = field("16+", default="")
        port: Int32 = field("16+", default=0)
        rack: String | None = field("16+", nullable="16+", default=None)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchResponse.FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[FetchResponse.NodeEndpoint] = field("16+", tag=0, default_factory=list)


class FetchRequest(Request[FetchResponse], api_key=1, versions="4-18", flexible="12+"):
    """Request for record batches of partitions, with an optional wait for them."""

    class ReplicaState(Struct):
        replica_id: Int32 = field("15+", default=-1)
        replica_epoch: Int64 = field("15+", default=-1)

    class FetchTopic(Struct):
        topic: String = field("4-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchRequest.FetchPartition] = field(default_factory=list)

    class FetchPartition(Struct):
        partition: Int32 = field(default=0)
        current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
        fetch_offset: Int64 = field(default=0)
        last_fetched_epoch: Int32 = field("12+", default=-1)
        log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
        partition_max_bytes: Int32 = field(default=0)
        replica_directory_id: Uuid = field("17+", tag=0, default=ZERO_UUID, ignorable=True)
        high_watermark: Int64 = field("18+", tag=1, default=9223372036854775807, ignorable=True)

    class ForgottenTopic(Struct):
        topic: String = field("7-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[Int32] = field("7+", default_factory=list)

    cluster_id: String | None = field("12+", nullable="12+", tag=0, default=None, ignorable=True)
    replica_id: Int32 = field("4-14", default=-1)
    replica_state: FetchRequest.ReplicaState = field(
        "15+", tag=1, default_factory=lambda: FetchRequest.ReplicaState()
    )
    max_wait_ms: Int32 = field(default=0)
    min_bytes: Int32 = field(default=0)
    max_bytes: Int32 = field(default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = field(default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchRequest.FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = field("7+", default_factory=list)
    rack_id: String = field("11+", default="", ignorable=True)
