"""DescribeProducers, API key 61, KIP-664: producers that wrote to partitions."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, Int64, String


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    """Response to :class:`DescribeProducersRequest`."""

    class TopicResponse(Struct):
        name: String = field(default="")
        partitions: list[DescribeProducersResponse.PartitionResponse] = field(default_factory=list)

    class PartitionResponse(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)
        active_producers: list[DescribeProducersResponse.ProducerState] = field(
            default_factory=list
        )

    class ProducerState(Struct):
        producer_id: Int64 = field(default=0)
        producer_epoch: Int32 = field(default=0)
        last_sequence: Int32 = field(default=-1)
        last_timestamp: Int64 = field(default=-1)
        coordinator_epoch: Int32 = field(default=0)
        current_txn_start_offset: Int64 = field(default=-1)

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeProducersResponse.TopicResponse] = field(default_factory=list)


class DescribeProducersRequest(
    Request[DescribeProducersResponse], api_key=61, versions="0", flexible="0+"
):
    """Producers that wrote to partitions (KIP-664)."""

    class TopicRequest(Struct):
        name: String = field(default="")
        partition_indexes: list[Int32] = field(default_factory=list)

    topics: list[DescribeProducersRequest.TopicRequest] = field(default_factory=list)
