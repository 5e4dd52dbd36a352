"""ReadShareGroupStateSummary, API key 87: read where partitions of a share group begin.

Version 1 adds the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class ReadShareGroupStateSummaryResponse(Response, api_key=87, versions="0-1", flexible="0+"):
    """Response to :class:`ReadShareGroupStateSummaryRequest`."""

    class ReadStateSummaryResult(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = field(
            default_factory=list
        )

    class PartitionResult(Struct):
        partition: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)
        state_epoch: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)
        delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)

    results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = field(
        default_factory=list
    )


class ReadShareGroupStateSummaryRequest(
    Request[ReadShareGroupStateSummaryResponse], api_key=87, versions="0-1", flexible="0+"
):
    """The group coordinator reads where the state of partitions begins."""

    class ReadStateSummaryData(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = field(
            default_factory=list
        )

    class PartitionData(Struct):
        partition: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)

    group_id: String = field(default="")
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = field(
        default_factory=list
    )
