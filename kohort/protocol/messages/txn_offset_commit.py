"""TxnOffsetCommit, API key 28: write a group's offsets inside a transaction.

With version 5 the broker adds the offsets topic to the transaction (KIP-890). Version 6 has topic
ids instead of names (KIP-1319).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import ZERO_UUID, Int16, Int32, Int64, String, Uuid


class TxnOffsetCommitResponse(Response, api_key=28, versions="0-6", flexible="3+"):
    """Response to :class:`TxnOffsetCommitRequest`."""

    class TxnOffsetCommitResponseTopic(Struct):
        name: String = field("0-5", default="", ignorable=True)
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = field(
            default_factory=list
        )

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: Int32 = field(default=0)
        error_code: Int16 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = field(default_factory=list)


class TxnOffsetCommitRequest(
    Request[TxnOffsetCommitResponse], api_key=28, versions="0-6", flexible="3+"
):
    """Request to write a group's offsets inside a transaction."""

    class TxnOffsetCommitRequestTopic(Struct):
        name: String = field("0-5", default="", ignorable=True)
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = field(
            default_factory=list
        )

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: Int32 = field(default=0)
        committed_offset: Int64 = field(default=0)
        committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
        committed_metadata: String | None = field(nullable="0+", default="")

    transactional_id: String = field(default="")
    group_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = field(default_factory=list)
