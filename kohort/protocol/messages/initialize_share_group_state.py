"""InitializeShareGroupState, API key 83: begin the state of partitions of a share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class InitializeShareGroupStateResponse(Response, api_key=83, versions="0", flexible="0+"):
    """Response to :class:`InitializeShareGroupStateRequest`."""

    class InitializeStateResult(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = field(
            default_factory=list
        )

    class PartitionResult(Struct):
        partition: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    results: list[InitializeShareGroupStateResponse.InitializeStateResult] = field(
        default_factory=list
    )


class InitializeShareGroupStateRequest(
    Request[InitializeShareGroupStateResponse], api_key=83, versions="0", flexible="0+"
):
    """The group coordinator begins the state of partitions at the share coordinator."""

    class InitializeStateData(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = field(
            default_factory=list
        )

    class PartitionData(Struct):
        partition: Int32 = field(default=0)
        state_epoch: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)

    group_id: String = field(default="")
    topics: list[InitializeShareGroupStateRequest.InitializeStateData] = field(default_factory=list)
