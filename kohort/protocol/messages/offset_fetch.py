"""OffsetFetch, API key 9: read a group's offsets.

- Version 7 adds require_stable (KIP-447).
- Version 8 adds several groups in one request.
- Version 9 adds member epochs (KIP-848).
- Version 10 adds topic ids.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


class OffsetFetchResponse(Response, api_key=9, versions="1-10", flexible="6+"):
    """Response to :class:`OffsetFetchRequest`."""

    class OffsetFetchResponseTopic(Struct):
        name: String = field("1-7", default="")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field(
            "1-7", default_factory=list
        )

    class OffsetFetchResponsePartition(Struct):
        partition_index: Int32 = field("1-7", default=0)
        committed_offset: Int64 = field("1-7", default=0)
        committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
        metadata: String | None = field("1-7", nullable="0-7", default="")
        error_code: Int16 = field("1-7", default=0)

    class OffsetFetchResponseGroup(Struct):
        group_id: String = field("8+", default="")
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field(
            "8+", default_factory=list
        )
        error_code: Int16 = field("8+", default=0)

    class OffsetFetchResponseTopics(Struct):
        name: String = field("8-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field(
            "8+", default_factory=list
        )

    class OffsetFetchResponsePartitions(Struct):
        partition_index: Int32 = field("8+", default=0)
        committed_offset: Int64 = field("8+", default=0)
        committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
        metadata: String | None = field("8+", nullable="8+", default="")
        error_code: Int16 = field("8+", default=0)

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = field("1-7", default_factory=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = field("8+", default_factory=list)


class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=9, versions="1-10", flexible="6+"):
    """Request to read a group's offsets."""

    class OffsetFetchRequestTopic(Struct):
        name: String = field("1-7", default="")
        partition_indexes: list[Int32] = field("1-7", default_factory=list)

    class OffsetFetchRequestGroup(Struct):
        group_id: String = field("8+", default="")
        member_id: String | None = field("9+", nullable="9+", default=None, ignorable=True)
        member_epoch: Int32 = field("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field(
            "8+", nullable="8+", default_factory=list
        )

    class OffsetFetchRequestTopics(Struct):
        name: String = field("8-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partition_indexes: list[Int32] = field("8+", default_factory=list)

    group_id: String = field("1-7", default="")
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = field(
        "1-7", nullable="2-7", default_factory=list
    )
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = field("8+", default_factory=list)
    require_stable: Bool = field("7+", default=False)
