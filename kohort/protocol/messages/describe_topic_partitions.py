"""DescribeTopicPartitions, API key 75, KIP-966: topics and partitions, page by page."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    """Response to :class:`DescribeTopicPartitionsRequest`."""

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: Int16 = field(default=0)
        name: String | None = field(nullable="0+", default="")
        topic_id: Uuid = field(default=ZERO_UUID, ignorable=True)
        is_internal: Bool = field(default=False, ignorable=True)
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ] = field(default_factory=list)
        topic_authorized_operations: Int32 = field(default=-2147483648)

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: Int16 = field(default=0)
        partition_index: Int32 = field(default=0)
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=-1, ignorable=True)
        replica_nodes: list[Int32] = field(default_factory=list)
        isr_nodes: list[Int32] = field(default_factory=list)
        eligible_leader_replicas: list[Int32] | None = field(nullable="0+", default=None)
        last_known_elr: list[Int32] | None = field(nullable="0+", default=None)
        offline_replicas: list[Int32] = field(default_factory=list, ignorable=True)

    class Cursor(Struct):
        topic_name: String = field(default="")
        partition_index: Int32 = field(default=0)

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = field(
        default_factory=list
    )
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = field(nullable="0+", default=None)


class DescribeTopicPartitionsRequest(
    Request[DescribeTopicPartitionsResponse], api_key=75, versions="0", flexible="0+"
):
    """Topics and partitions, page by page (KIP-966)."""

    class TopicRequest(Struct):
        name: String = field(default="")

    class Cursor(Struct):
        topic_name: String = field(default="")
        partition_index: Int32 = field(default=0)

    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = field(default_factory=list)
    response_partition_limit: Int32 = field(default=2000)
    cursor: DescribeTopicPartitionsRequest.Cursor | None = field(nullable="0+", default=None)
