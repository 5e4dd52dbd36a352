"""Records of ``__share_group_state`` (KIP-932): snapshots and updates of share-partitions."""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import ZERO_UUID, Int8, Int16, Int32, Int64, String, Uuid


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    """Type 0: the whole state of a share-partition."""

    group_id: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partition: Int32 = field(default=0)


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """Type 0: the whole state of a share-partition."""

    class StateBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        delivery_state: Int8 = field(default=0)
        delivery_count: Int16 = field(default=0)

    snapshot_epoch: Int32 = field(default=0)
    state_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    create_timestamp: Int64 = field(default=0)
    write_timestamp: Int64 = field(default=0)
    state_batches: list[ShareSnapshotValue.StateBatch] = field(default_factory=list)
    delivery_complete_count: Int32 = field(tag=0, default=-1)


class ShareUpdateKey(Message, api_key=1, versions="0"):
    """Type 1: a change of the latest snapshot of a share-partition."""

    group_id: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partition: Int32 = field(default=0)


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """Type 1: a change of the latest snapshot of a share-partition."""

    class StateBatch(Struct):
        first_offset: Int64 = field(default=0)
        last_offset: Int64 = field(default=0)
        delivery_state: Int8 = field(default=0)
        delivery_count: Int16 = field(default=0)

    snapshot_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    state_batches: list[ShareUpdateValue.StateBatch] = field(default_factory=list)
    delivery_complete_count: Int32 = field(tag=0, default=-1)
