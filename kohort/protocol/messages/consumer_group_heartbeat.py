"""ConsumerGroupHeartbeat, API key 68: join, stay in and leave a KIP-848 group."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, String, Uuid


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions="0-1", flexible="0+"):
    """Response to :class:`ConsumerGroupHeartbeatRequest`."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = field(
            default_factory=list
        )

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = field(
        nullable="0+", default=None
    )


class ConsumerGroupHeartbeatRequest(
    Request[ConsumerGroupHeartbeatResponse], api_key=68, versions="0-1", flexible="0+"
):
    """Request to join, stay in and leave a group of the newer protocol (KIP-848)."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    group_id: String = field(default="")
    member_id: String = field(default="")
    member_epoch: Int32 = field(default=0)
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(nullable="0+", default=None)
    subscribed_topic_regex: String | None = field("1+", nullable="1+", default=None)
    server_assignor: String | None = field(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = field(
        nullable="0+", default=None
    )
