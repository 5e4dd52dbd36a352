"""DescribeQuorum, API key 55: state of the metadata quorum."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


class DescribeQuorumResponse(Response, api_key=55, versions="0-2", flexible="0+"):
    """Response to :class:`DescribeQuorumRequest`."""

    class ReplicaState(Struct):
        replica_id: Int32 = field(default=0)
        replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
        log_end_offset: Int64 = field(default=0)
        last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
        last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)

    class TopicData(Struct):
        topic_name: String = field(default="")
        partitions: list[DescribeQuorumResponse.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)
        error_message: String | None = field("2+", nullable="2+", default="", ignorable=True)
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field(default=0)
        high_watermark: Int64 = field(default=0)
        current_voters: list[DescribeQuorumResponse.ReplicaState] = field(default_factory=list)
        observers: list[DescribeQuorumResponse.ReplicaState] = field(default_factory=list)

    class Node(Struct):
        node_id: Int32 = field("2+", default=0)
        listeners: list[DescribeQuorumResponse.Listener] = field("2+", default_factory=list)

    class Listener(Struct):
        name: String = field("2+", default="")
        host: String = field("2+", default="")
        port: UInt16 = field("2+", default=0)

    error_code: Int16 = field(default=0)
    error_message: String | None = field("2+", nullable="2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponse.TopicData] = field(default_factory=list)
    nodes: list[DescribeQuorumResponse.Node] = field("2+", default_factory=list)


class DescribeQuorumRequest(
    Request[DescribeQuorumResponse], api_key=55, versions="0-2", flexible="0+"
):
    """State of the metadata quorum."""

    class TopicData(Struct):
        topic_name: String = field(default="")
        partitions: list[DescribeQuorumRequest.PartitionData] = field(default_factory=list)

    class PartitionData(Struct):
        partition_index: Int32 = field(default=0)

    topics: list[DescribeQuorumRequest.TopicData] = field(default_factory=list)
