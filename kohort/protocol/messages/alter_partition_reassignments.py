"""AlterPartitionReassignments, API key 45, KIP-455: move replicas between brokers."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bool, Int16, Int32, String


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions="0-1", flexible="0+"):
    """Response to :class:`AlterPartitionReassignmentsRequest`."""

    class ReassignableTopicResponse(Struct):
        name: String = field(default="")
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = field(
            default_factory=list
        )

    class ReassignablePartitionResponse(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = field(
        default_factory=list
    )


class AlterPartitionReassignmentsRequest(
    Request[AlterPartitionReassignmentsResponse], api_key=45, versions="0-1", flexible="0+"
):
    """Request to move replicas between brokers. Null replicas cancel a move (KIP-455)."""

    class ReassignableTopic(Struct):
        name: String = field(default="")
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = field(
            default_factory=list
        )

    class ReassignablePartition(Struct):
        partition_index: Int32 = field(default=0)
        replicas: list[Int32] | None = field(nullable="0+", default=None)

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = field(default_factory=list)
