"""ShareAcknowledge, API key 79: acknowledge records of a share group without acquiring more.

- Version 1 is the first that brokers keep (KIP-932).
- Version 2 adds renewals (KIP-1222) and the duration of the lock.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="1+"):
    """Response to :class:`ShareAcknowledgeRequest`."""

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ShareAcknowledgeResponse.PartitionData] = field(default_factory=list)

    class NodeEndpoint(Struct):
        node_id: Int32 = field(default=0)
        host: String = field(default="")
        port: Int32 = field(default=0)
        rack: String | None = field(nullable="1+", default=None)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="1+", default=None, ignorable=True)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ShareAcknowledgeResponse.LeaderIdAndEpoch()
        )

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="1+", default=None, ignorable=True)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0)
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = field(
        default_factory=list
    )
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = field(default_factory=list)


class ShareAcknowledgeRequest(
    Request[ShareAcknowledgeResponse], api_key=79, versions="1-2", flexible="1+"
):
    """Request to acknowledge acquired records without acquiring more."""

    class AcknowledgeTopic(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = field(default_factory=list)

    class AcknowledgePartition(Struct):
        partition_index: Int32 = field(default=0)
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = field(
            default_factory=list
        )

    class AcknowledgementBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        acknowledge_types: list[Int8] = field(default_factory=list)

    group_id: String | None = field(nullable="1+", default=None)
    member_id: String | None = field(nullable="1+", default="")
    share_session_epoch: Int32 = field(default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = field(default_factory=list)
