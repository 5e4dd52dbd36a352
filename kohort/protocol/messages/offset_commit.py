"""OffsetCommit, API key 8: write a group's offsets.

Version 6 adds leader epochs (KIP-320). Version 9 adds member epochs (KIP-848). Version 10 adds
topic ids.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class OffsetCommitResponse(Response, api_key=8, versions="2-10", flexible="8+"):
    """Response to :class:`OffsetCommitRequest`."""

    class OffsetCommitResponseTopic(Struct):
        name: String = field("2-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field(
            default_factory=list
        )

    class OffsetCommitResponsePartition(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = field(default_factory=list)


class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=8, versions="2-10", flexible="8+"):
    """Request to write a group's offsets."""

    class OffsetCommitRequestTopic(Struct):
        name: String = field("2-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field(
            default_factory=list
        )

    class OffsetCommitRequestPartition(Struct):
        partition_index: Int32 = field(default=0)
        committed_offset: Int64 = field(default=0)
        committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
        committed_metadata: String | None = field(nullable="0+", default="")

    group_id: String = field(default="")
    generation_id_or_member_epoch: Int32 = field(default=-1, ignorable=True)
    member_id: String = field(default="", ignorable=True)
    group_instance_id: String | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = field(default_factory=list)
