"""WriteShareGroupState, API key 85: write the state of partitions of a share group.

Version 1 adds the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int8, Int16, Int32, Int64, String, Uuid


class WriteShareGroupStateResponse(Response, api_key=85, versions="0-1", flexible="0+"):
    """Response to :class:`WriteShareGroupStateRequest`."""

    class WriteStateResult(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = field(default_factory=list)

    class PartitionResult(Struct):
        partition: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    results: list[WriteShareGroupStateResponse.WriteStateResult] = field(default_factory=list)


class WriteShareGroupStateRequest(
    Request[WriteShareGroupStateResponse], api_key=85, versions="0-1", flexible="0+"
):
    """A leader writes the state of its partitions to the share coordinator."""

    class WriteStateData(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[WriteShareGroupStateRequest.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition: Int32 = field(default=0)
        state_epoch: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)
        delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = field(default_factory=list)

    class StateBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        delivery_state: Int8 = field(default=0)
        delivery_count: Int16 = field(default=0)

    group_id: String = field(default="")
    topics: list[WriteShareGroupStateRequest.WriteStateData] = field(default_factory=list)
