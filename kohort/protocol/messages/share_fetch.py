"""ShareFetch, API key 78: acquire records of a share group, and acknowledge earlier ones.

- Version 1 is the first that brokers keep (KIP-932).
- Version 2 adds the way of acquiring (KIP-1206) and renewals (KIP-1222).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


class ShareFetchResponse(Response, api_key=78, versions="1-2", flexible="1+"):
    """Response to :class:`ShareFetchRequest`."""

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ShareFetchResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: Int32 = field(default=0)
        host: String = field(default="")
        port: Int32 = field(default=0)
        rack: String | None = field(nullable="1+", default=None)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="1+", default=None)
        acknowledge_error_code: Int16 = field(default=0)
        acknowledge_error_message: String | None = field(nullable="1+", default=None)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ShareFetchResponse.LeaderIdAndEpoch()
        )
        records: Records | None = field(default=None)
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = field(default_factory=list)

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)

    class AcquiredRecords(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        delivery_count: Int16 = field(default=0)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="1+", default=None)
    acquisition_lock_timeout_ms: Int32 = field(default=0)
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[ShareFetchResponse.NodeEndpoint] = field(default_factory=list)


class ShareFetchRequest(Request[ShareFetchResponse], api_key=78, versions="1-2", flexible="1+"):
    """Request to acquire records, and to acknowledge records that were acquired before."""

    class FetchTopic(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ShareFetchRequest.FetchPartition] = field(default_factory=list)

    class ForgottenTopic(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    class FetchPartition(Struct):
        partition_index: Int32 = field(default=0)
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = field(
            default_factory=list
        )

    class AcknowledgementBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        acknowledge_types: list[Int8] = field(default_factory=list)

    group_id: String | None = field(nullable="1+", default=None)
    member_id: String | None = field(nullable="1+", default="")
    share_session_epoch: Int32 = field(default=0)
    max_wait_ms: Int32 = field(default=0)
    min_bytes: Int32 = field(default=0)
    max_bytes: Int32 = field(default=2147483647)
    max_records: Int32 = field(default=0)
    batch_size: Int32 = field(default=0)
    share_acquire_mode: Int8 = field("2+", default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[ShareFetchRequest.FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = field(default_factory=list)
