"""Records of ``__consumer_offsets`` for share groups, types 10 to 15."""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import ZERO_UUID, Int8, Int32, Int64, String, Uuid


class ShareGroupMemberMetadataKey(Message, api_key=10, versions="0"):
    """Type 10: a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupMemberMetadataValue(Message, api_key=10, versions="0", flexible="0+"):
    """Type 10: a member."""

    rack_id: String | None = field(nullable="0+", default="")
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)


class ShareGroupMetadataKey(Message, api_key=11, versions="0"):
    """Type 11: the group epoch."""

    group_id: String = field(default="")


class ShareGroupMetadataValue(Message, api_key=11, versions="0", flexible="0+"):
    """Type 11: the group epoch."""

    epoch: Int32 = field(default=0)
    metadata_hash: Int64 = field(default=0)


class ShareGroupTargetAssignmentMetadataKey(Message, api_key=12, versions="0"):
    """Type 12: the epoch of the target assignment."""

    group_id: String = field(default="")


class ShareGroupTargetAssignmentMetadataValue(Message, api_key=12, versions="0", flexible="0+"):
    """Type 12: the epoch of the target assignment."""

    assignment_epoch: Int32 = field(default=0)
    assignment_timestamp: Int64 = field(tag=0, default=0)


class ShareGroupTargetAssignmentMemberKey(Message, api_key=13, versions="0"):
    """Type 13: the target assignment of a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupTargetAssignmentMemberValue(Message, api_key=13, versions="0", flexible="0+"):
    """Type 13: the target assignment of a member."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartitions] = field(
        default_factory=list
    )


class ShareGroupCurrentMemberAssignmentKey(Message, api_key=14, versions="0"):
    """Type 14: the epoch and the assignment of a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupCurrentMemberAssignmentValue(Message, api_key=14, versions="0", flexible="0+"):
    """Type 14: the epoch and the assignment of a member."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    member_epoch: Int32 = field(default=0)
    previous_member_epoch: Int32 = field(default=0)
    state: Int8 = field(default=0)
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = field(
        default_factory=list
    )


class ShareGroupStatePartitionMetadataKey(Message, api_key=15, versions="0"):
    """Type 15: the partitions that have a state at the share coordinator."""

    group_id: String = field(default="")


class ShareGroupStatePartitionMetadataValue(Message, api_key=15, versions="0", flexible="0+"):
    """Type 15: the partitions that have a state at the share coordinator."""

    class TopicPartitionsInfo(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        topic_name: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    class TopicInfo(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        topic_name: String = field(default="")

    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = field(
        default_factory=list
    )
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = field(
        default_factory=list
    )
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = field(
        default_factory=list
    )
