"""Records of ``__consumer_offsets`` for committed offsets.

A key is an int16 record type and the key message. A value is an int16 version and the value.
"""

from __future__ import annotations

from kohort.protocol._struct import Message, field
from kohort.protocol._types import ZERO_UUID, Int32, Int64, String, Uuid


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    """Record type 0, read only."""

    group: String = field(default="")
    topic: String = field(default="")
    partition: Int32 = field(default=0)


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    """Record type 0, read only."""

    offset: Int64 = field(default=0)
    metadata: String = field(default="")
    commit_timestamp: Int64 = field(default=0)


class OffsetCommitKey(Message, api_key=1, versions="0"):
    """Record type 1."""

    group: String = field(default="")
    topic: String = field(default="")
    partition: Int32 = field(default=0)


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    """Record type 1."""

    offset: Int64 = field(default=0)
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = field(default="")
    commit_timestamp: Int64 = field(default=0)
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, default=ZERO_UUID, ignorable=True)
