"""ListOffsets (API key 2): look up offsets by timestamp.

Negative timestamps name places in the log: -1 latest, -2 earliest, -3 that of the largest
timestamp (version 7), -4 earliest local (version 8), -5 last tiered (version 9), -6 earliest
pending upload (version 11).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, Int64, String


class ListOffsetsResponse(Response, api_key=2, versions="1-11", flexible="6+"):
    """The answer to :class:`ListOffsetsRequest`."""

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
    """Look up offsets by timestamp; negative timestamps name the ends of the log."""

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
