"""ListOffsets, API key 2: look up offsets by timestamp.

Negative timestamps select offsets of the log:

- -1 the latest, -2 the earliest
- -3 that of the largest timestamp, from version 7 on
- -4 the earliest local one, from version 8 on
- -5 the last tiered one, from version 9 on
- -6 the earliest with a pending upload, from version 11 on
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, Int64, String


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    """Response to :class:`ListOffsetsRequest`."""

    class ListOffsetsTopicResponse(Struct):
        name: String = field(default="")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field(
            default_factory=list
        )

    class ListOffsetsPartitionResponse(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        timestamp: Int64 = field(default=-1)
        offset: Int64 = field(default=-1)
        leader_epoch: Int32 = field("4+", default=-1)

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = field(default_factory=list)


class ListOffsetsRequest(Request[ListOffsetsResponse], api_key=2, versions="1-11", flexible="6+"):
    """Request for offsets by timestamp. Negative timestamps select the ends of the log."""

    class ListOffsetsTopic(Struct):
        name: String = field(default="")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field(default_factory=list)

    class ListOffsetsPartition(Struct):
        partition_index: Int32 = field(default=0)
        current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
        timestamp: Int64 = field(default=0)

    replica_id: Int32 = field(default=0)
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)
