"""OffsetDelete, API key 47, KIP-496: delete a group's offsets of topics that it does not consume.

No version is flexible.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, String


class OffsetDeleteResponse(Response, api_key=47, versions="0"):
    """Response to :class:`OffsetDeleteRequest`."""

    class OffsetDeleteResponseTopic(Struct):
        name: String = field(default="")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field(
            default_factory=list
        )

    class OffsetDeleteResponsePartition(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = field(default_factory=list)


class OffsetDeleteRequest(Request[OffsetDeleteResponse], api_key=47, versions="0"):
    """Request to delete a group's offsets of topics that it does not consume (KIP-496)."""

    class OffsetDeleteRequestTopic(Struct):
        name: String = field(default="")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field(
            default_factory=list
        )

    class OffsetDeleteRequestPartition(Struct):
        partition_index: Int32 = field(default=0)

    group_id: String = field(default="")
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = field(default_factory=list)
