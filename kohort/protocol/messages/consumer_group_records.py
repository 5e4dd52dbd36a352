"""Records of ``__consumer_offsets`` for KIP-848 groups, types 3 to 8 and 16."""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import ZERO_UUID, Bytes, Int8, Int32, Int64, String, Uuid


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    """Type 3: the group epoch."""

    group_id: String = field(default="")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    """Type 3: the group epoch."""

    epoch: Int32 = field(default=0)
    metadata_hash: Int64 = field(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    """Type 4, retired: partitions of the subscribed topics."""

    group_id: String = field(default="")


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    """Type 4, retired: partitions of the subscribed topics."""

    class TopicMetadata(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        topic_name: String = field(default="")
        num_partitions: Int32 = field(default=0)
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = field(
            default_factory=list
        )

    class PartitionMetadata(Struct):
        partition: Int32 = field(default=0)
        racks: list[String] = field(default_factory=list)

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = field(default_factory=list)


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    """Type 5: a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    """Type 5: a member."""

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: Int32 = field(default=0)
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = field(
            default_factory=list
        )

    class ClassicProtocol(Struct):
        name: String = field(default="")
        metadata: Bytes = field(default=b"")

    instance_id: String | None = field(nullable="0+", default="")
    rack_id: String | None = field(nullable="0+", default="")
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)
    subscribed_topic_regex: String | None = field(nullable="0+", default="")
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(nullable="0+", default="")
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = field(
        nullable="0+",
        tag=0,
        default_factory=lambda: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(),
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    """Type 6: the epoch of the target assignment."""

    group_id: String = field(default="")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    """Type 6: the epoch of the target assignment."""

    assignment_epoch: Int32 = field(default=0)
    assignment_timestamp: Int64 = field(tag=0, default=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    """Type 7: the target assignment of a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    """Type 7: the target assignment of a member."""

    class TopicPartition(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = field(
        default_factory=list
    )


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    """Type 8: the current assignment of a member."""

    group_id: String = field(default="")
    member_id: String = field(default="")


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    """Type 8: the current assignment of a member."""

    class TopicPartitions(Struct):
        topic_id: Uuid = field(default=ZERO_UUID)
        partitions: list[Int32] = field(default_factory=list)
        assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0, default_factory=list)

    member_epoch: Int32 = field(default=0)
    previous_member_epoch: Int32 = field(default=0)
    state: Int8 = field(default=0)
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = field(
        default_factory=list
    )
    partitions_pending_revocation: list[
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
    ] = field(default_factory=list)


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    """Type 16: a resolved topic pattern."""

    group_id: String = field(default="")
    regular_expression: String = field(default="")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    """Type 16: a resolved topic pattern."""

    topics: list[String] = field(default_factory=list)
    version: Int64 = field(default=0)
    timestamp: Int64 = field(default=0)
