"""DeleteShareGroupState, API key 86: delete the state of partitions of a share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, String, Uuid


class DeleteShareGroupStateResponse(Response, api_key=86, versions="0", flexible="0+"):
    """Response to :class:`DeleteShareGroupStateRequest`."""

    class DeleteStateResult(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = field(
            default_factory=list
        )

    class PartitionResult(Struct):
        partition: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    results: list[DeleteShareGroupStateResponse.DeleteStateResult] = field(default_factory=list)


class DeleteShareGroupStateRequest(
    Request[DeleteShareGroupStateResponse], api_key=86, versions="0", flexible="0+"
):
    """The group coordinator deletes the state of partitions at the share coordinator."""

    class DeleteStateData(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition: Int32 = field(default=0)

    group_id: String = field(default="")
    topics: list[DeleteShareGroupStateRequest.DeleteStateData] = field(default_factory=list)
