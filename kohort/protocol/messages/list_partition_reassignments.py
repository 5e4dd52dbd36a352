"""ListPartitionReassignments, API key 46, KIP-455: partitions that are moving between brokers."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    """Response to :class:`ListPartitionReassignmentsRequest`."""

    class OngoingTopicReassignment(Struct):
        name: String = field(default="")
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = field(
            default_factory=list
        )

    class OngoingPartitionReassignment(Struct):
        partition_index: Int32 = field(default=0)
        replicas: list[Int32] = field(default_factory=list)
        adding_replicas: list[Int32] = field(default_factory=list)
        removing_replicas: list[Int32] = field(default_factory=list)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = field(
        default_factory=list
    )


class ListPartitionReassignmentsRequest(
    Request[ListPartitionReassignmentsResponse], api_key=46, versions="0", flexible="0+"
):
    """Partitions that are moving between brokers (KIP-455)."""

    class ListPartitionReassignmentsTopics(Struct):
        name: String = field(default="")
        partition_indexes: list[Int32] = field(default_factory=list)

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = field(
        nullable="0+", default=None
    )
