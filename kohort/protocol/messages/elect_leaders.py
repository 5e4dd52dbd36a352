"""ElectLeaders, API key 43, KIP-460: give partitions their preferred leader, or any leader."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    """Response to :class:`ElectLeadersRequest`."""

    class ReplicaElectionResult(Struct):
        topic: String = field(default="")
        partition_result: list[ElectLeadersResponse.PartitionResult] = field(default_factory=list)

    class PartitionResult(Struct):
        partition_id: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("1+", default=0, ignorable=True)
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = field(
        default_factory=list
    )


class ElectLeadersRequest(Request[ElectLeadersResponse], api_key=43, versions="0-2", flexible="2+"):
    """Request to elect the preferred or any leader. Null selects all partitions (KIP-460)."""

    class TopicPartitions(Struct):
        topic: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = field(
        nullable="0+", default_factory=list
    )
    timeout_ms: Int32 = field(default=60000)
