"""ShareGroupDescribe, API key 77: state and members of share groups (KIP-932)."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


class ShareGroupDescribeResponse(Response, api_key=77, versions="1", flexible="1+"):
    """Response to :class:`ShareGroupDescribeRequest`."""

    class DescribedGroup(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="1+", default=None)
        group_id: String = field(default="")
        group_state: String = field(default="")
        group_epoch: Int32 = field(default=0)
        assignment_epoch: Int32 = field(default=0)
        assignor_name: String = field(default="")
        members: list[ShareGroupDescribeResponse.Member] = field(default_factory=list)
        authorized_operations: Int32 = field(default=-2147483648)

    class Member(Struct):
        member_id: String = field(default="")
        rack_id: String | None = field(nullable="1+", default=None)
        member_epoch: Int32 = field(default=0)
        client_id: String = field(default="")
        client_host: String = field(default="")
        subscribed_topic_names: list[String] = field(default_factory=list)
        assignment: ShareGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ShareGroupDescribeResponse.Assignment()
        )

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = field(
            default_factory=list
        )

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        topic_name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[ShareGroupDescribeResponse.DescribedGroup] = field(default_factory=list)


class ShareGroupDescribeRequest(
    Request[ShareGroupDescribeResponse], api_key=77, versions="1", flexible="1+"
):
    """State and members of share groups."""

    group_ids: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field(default=False)
