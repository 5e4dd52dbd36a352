"""DescribeShareGroupOffsets, API key 90: the start offsets of share groups.

Version 1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions="0-1", flexible="0+"):
    """Response to :class:`DescribeShareGroupOffsetsRequest`."""

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: String = field(default="")
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = (
            field(default_factory=list)
        )
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: String = field(default="")
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
        ] = field(default_factory=list)

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32 = field(default=0)
        start_offset: Int64 = field(default=0)
        leader_epoch: Int32 = field(default=0)
        lag: Int64 = field("1+", default=-1, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = field(
        default_factory=list
    )


class DescribeShareGroupOffsetsRequest(
    Request[DescribeShareGroupOffsetsResponse], api_key=90, versions="0-1", flexible="0+"
):
    """The start offsets of partitions in share groups."""

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: String = field(default="")
        topics: (
            list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        ) = field(nullable="0+", default_factory=list)

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = field(
        default_factory=list
    )
