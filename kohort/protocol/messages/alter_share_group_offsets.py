"""AlterShareGroupOffsets, API key 91: set start offsets of an empty share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions="0", flexible="0+"):
    """Response to :class:`AlterShareGroupOffsetsRequest`."""

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field(default="")
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = (
            field(default_factory=list)
        )

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = field(
        default_factory=list
    )


class AlterShareGroupOffsetsRequest(
    Request[AlterShareGroupOffsetsResponse], api_key=91, versions="0", flexible="0+"
):
    """Request to set the start offsets of an empty share group."""

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field(default="")
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = (
            field(default_factory=list)
        )

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)

    group_id: String = field(default="")
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = field(
        default_factory=list
    )
