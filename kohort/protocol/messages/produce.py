"""Produce, API key 0: append record batches to partitions.

Version 9 is flexible. Version 13 names topics by id (KIP-516). A request with acks=0 has no
response.
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


class ProduceResponse(Response, api_key=0, versions="3-13", flexible="9+"):
    """Response to :class:`ProduceRequest`."""

    class TopicProduceResponse(Struct):
        name: String = field("3-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(
            default_factory=list
        )

    class PartitionProduceResponse(Struct):
        index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        base_offset: Int64 = field(default=0)
        log_append_time_ms: Int64 = field(default=-1, ignorable=True)
        log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            "8+", default_factory=list, ignorable=True
        )
        error_message: String | None = field("8+", nullable="8+", default=None, ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            "10+", tag=0, default_factory=lambda: ProduceResponse.LeaderIdAndEpoch()
        )

    class BatchIndexAndErrorMessage(Struct):
        batch_index: Int32 = field("8+", default=0)
        batch_index_error_message: String | None = field("8+", nullable="8+", default=None)

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field("10+", default=-1)
        leader_epoch: Int32 = field("10+", default=-1)

    class NodeEndpoint(Struct):
        node_id: Int32 = field("10+", default=0)
        host: String = field("10+", default="")
        port: Int32 = field("10+", default=0)
        rack: String | None = field("10+", nullable="10+", default=None)

    responses: list[ProduceResponse.TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    node_endpoints: list[ProduceResponse.NodeEndpoint] = field("10+", tag=0, default_factory=list)


class ProduceRequest(Request[ProduceResponse], api_key=0, versions="3-13", flexible="9+"):
    """Request to append record batches to partitions."""

    class TopicProduceData(Struct):
        name: String = field("3-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData] = field(default_factory=list)

    class PartitionProduceData(Struct):
        index: Int32 = field(default=0)
        records: Records | None = field(nullable="0+", default=None)

    transactional_id: String | None = field(nullable="3+", default=None)
    acks: Int16 = field(default=0)
    timeout_ms: Int32 = field(default=0)
    topic_data: list[ProduceRequest.TopicProduceData] = field(default_factory=list)
