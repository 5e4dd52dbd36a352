"""ConsumerGroupDescribe, API key 69: state and members of KIP-848 groups."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Bool, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeResponse(Response, api_key=69, versions="0-1", flexible="0+"):
    """Response to :class:`ConsumerGroupDescribeRequest`."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        topic_name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = field(
            default_factory=list
        )

    class DescribedGroup(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default=None)
        group_id: String = field(default="")
        group_state: String = field(default="")
        group_epoch: Int32 = field(default=0)
        assignment_epoch: Int32 = field(default=0)
        assignor_name: String = field(default="")
        members: list[ConsumerGroupDescribeResponse.Member] = field(default_factory=list)
        authorized_operations: Int32 = field(default=-2147483648)

    class Member(Struct):
        member_id: String = field(default="")
        instance_id: String | None = field(nullable="0+", default=None)
        rack_id: String | None = field(nullable="0+", default=None)
        member_epoch: Int32 = field(default=0)
        client_id: String = field(default="")
        client_host: String = field(default="")
        subscribed_topic_names: list[String] = field(default_factory=list)
        subscribed_topic_regex: String | None = field(nullable="0+", default=None)
        assignment: ConsumerGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()
        )
        target_assignment: ConsumerGroupDescribeResponse.Assignment = field(
            default_factory=lambda: ConsumerGroupDescribeResponse.Assignment()
        )
        member_type: Int8 = field("1+", default=-1, ignorable=True)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = field(default_factory=list)


class ConsumerGroupDescribeRequest(
    Request[ConsumerGroupDescribeResponse], api_key=69, versions="0-1", flexible="0+"
):
    """State and members of groups of the newer protocol (KIP-848)."""

    group_ids: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field(default=False)
