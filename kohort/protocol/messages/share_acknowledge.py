"""ShareAcknowledge, API key 79, KIP-932: acknowledge records of a share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, String, Uuid


class ShareAcknowledgeResponse(Response, api_key=79, versions="1-2", flexible="0+"):
    """Response to :class:`ShareAcknowledgeRequest`."""

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ShareAcknowledgeResponse.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ShareAcknowledgeResponse.LeaderIdAndEpoch()
        )

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)

    class NodeEndpoint(Struct):
        node_id: Int32 = field(default=0)
        host: String = field(default="")
        port: Int32 = field(default=0)
        rack: String | None = field(nullable="0+", default=None)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = field(
        default_factory=list
    )
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = field(default_factory=list)


class ShareAcknowledgeRequest(
    Request[ShareAcknowledgeResponse], api_key=79, versions="1-2", flexible="0+"
):
    """Request to acknowledge records of a share group (KIP-932)."""

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

    group_id: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default="")
    share_session_epoch: Int32 = field(default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = field(default_factory=list)
