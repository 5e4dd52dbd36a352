"""DeleteShareGroupOffsets, API key 92: delete start offsets of an empty share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, String, Uuid


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions="0", flexible="0+"):
    """Response to :class:`DeleteShareGroupOffsetsRequest`."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field(default="")
        topic_id: Uuid = field(default=ZERO_UUID)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = field(
        default_factory=list
    )


class DeleteShareGroupOffsetsRequest(
    Request[DeleteShareGroupOffsetsResponse], api_key=92, versions="0", flexible="0+"
):
    """Request to delete the start offsets of an empty share group."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field(default="")

    group_id: String = field(default="")
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = field(
        default_factory=list
    )
