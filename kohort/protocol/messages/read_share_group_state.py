"""ReadShareGroupState, API key 84: read the state of partitions of a share group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int8, Int16, Int32, Int64, String, Uuid


class ReadShareGroupStateResponse(Response, api_key=84, versions="0", flexible="0+"):
    """Response to :class:`ReadShareGroupStateRequest`."""

    class ReadStateResult(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = field(default_factory=list)

    class PartitionResult(Struct):
        partition: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)
        state_epoch: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = field(default_factory=list)

    class StateBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        delivery_state: Int8 = field(default=0)
        delivery_count: Int16 = field(default=0)

    results: list[ReadShareGroupStateResponse.ReadStateResult] = field(default_factory=list)


class ReadShareGroupStateRequest(
    Request[ReadShareGroupStateResponse], api_key=84, versions="0", flexible="0+"
):
    """A leader reads the state of its partitions from the share coordinator."""

    class ReadStateData(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ReadShareGroupStateRequest.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)

    group_id: String = field(default="")
    topics: list[ReadShareGroupStateRequest.ReadStateData] = field(default_factory=list)
