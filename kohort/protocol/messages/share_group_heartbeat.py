"""ShareGroupHeartbeat, API key 76: join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, String, Uuid


class ShareGroupHeartbeatResponse(Response, api_key=76, versions="1", flexible="1+"):
    """Response to :class:`ShareGroupHeartbeatRequest`."""

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = field(
            default_factory=list
        )

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="1+", default=None)
    member_id: String | None = field(nullable="1+", default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: ShareGroupHeartbeatResponse.Assignment | None = field(nullable="1+", default=None)


class ShareGroupHeartbeatRequest(
    Request[ShareGroupHeartbeatResponse], api_key=76, versions="1", flexible="1+"
):
    """Request to join, stay in and leave a share group."""

    group_id: String = field(default="")
    member_id: String = field(default="")
    member_epoch: Int32 = field(default=0)
    rack_id: String | None = field(nullable="1+", default=None)
    subscribed_topic_names: list[String] | None = field(nullable="1+", default=None)
