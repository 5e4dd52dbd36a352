"""Metadata, API key 3: brokers, topics, partitions and their leaders.

Version 0 cannot request no topics. From version 1 on null means all topics. Version 10 adds topic
ids. Version 13 adds an error for the whole response (KIP-1102).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    """Response to :class:`MetadataRequest`."""

    class MetadataResponseBroker(Struct):
        node_id: Int32 = field(default=0)
        host: String = field(default="")
        port: Int32 = field(default=0)
        rack: String | None = field("1+", nullable="1+", default=None, ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: Int16 = field(default=0)
        name: String | None = field(nullable="12+", default="")
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        is_internal: Bool = field("1+", default=False, ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition] = field(default_factory=list)
        topic_authorized_operations: Int32 = field("8+", default=-2147483648)

    class MetadataResponsePartition(Struct):
        error_code: Int16 = field(default=0)
        partition_index: Int32 = field(default=0)
        leader_id: Int32 = field(default=0)
        leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
        replica_nodes: list[Int32] = field(default_factory=list)
        isr_nodes: list[Int32] = field(default_factory=list)
        offline_replicas: list[Int32] = field("5+", default_factory=list, ignorable=True)

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponse.MetadataResponseBroker] = field(default_factory=list)
    cluster_id: String | None = field("2+", nullable="2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponse.MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)


class MetadataRequest(Request[MetadataResponse], api_key=3, versions="0-13", flexible="9+"):
    """Brokers, topics, partitions and their leaders."""

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        name: String | None = field(nullable="10+", default="")

    topics: list[MetadataRequest.MetadataRequestTopic] | None = field(
        nullable="1+", default_factory=list
    )
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)
