"""OffsetForLeaderEpoch, API key 23, KIP-320: the end offset of a leader epoch."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, Int64, String


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="2-4", flexible="4+"):
    """Response to :class:`OffsetForLeaderEpochRequest`."""

    class OffsetForLeaderTopicResult(Struct):
        topic: String = field(default="")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field(default_factory=list)

    class EpochEndOffset(Struct):
        error_code: Int16 = field(default=0)
        partition: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=-1, ignorable=True)
        end_offset: Int64 = field(default=-1)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = field(
        default_factory=list
    )


class OffsetForLeaderEpochRequest(
    Request[OffsetForLeaderEpochResponse], api_key=23, versions="2-4", flexible="4+"
):
    """Request for the end offset of a leader epoch (KIP-320)."""

    class OffsetForLeaderTopic(Struct):
        topic: String = field(default="")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field(
            default_factory=list
        )

    class OffsetForLeaderPartition(Struct):
        partition: Int32 = field(default=0)
        current_leader_epoch: Int32 = field(default=-1, ignorable=True)
        leader_epoch: Int32 = field(default=0)

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = field(default_factory=list)
