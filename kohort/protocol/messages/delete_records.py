"""DeleteRecords, API key 21: move the log start of partitions forward."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, Int64, String


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    """Response to :class:`DeleteRecordsRequest`."""

    class DeleteRecordsTopicResult(Struct):
        name: String = field(default="")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field(
            default_factory=list
        )

    class DeleteRecordsPartitionResult(Struct):
        partition_index: Int32 = field(default=0)
        low_watermark: Int64 = field(default=0)
        error_code: Int16 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = field(default_factory=list)


class DeleteRecordsRequest(
    Request[DeleteRecordsResponse], api_key=21, versions="0-2", flexible="2+"
):
    """Request to move the log start of partitions forward."""

    class DeleteRecordsTopic(Struct):
        name: String = field(default="")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field(default_factory=list)

    class DeleteRecordsPartition(Struct):
        partition_index: Int32 = field(default=0)
        offset: Int64 = field(default=0)

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0)
