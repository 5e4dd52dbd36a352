"""Records of ``__transaction_state``, the state of a transaction coordinator.

A key is an int16 version and the key message. A value is an int16 version and the value. A removed
transactional id has a null value.
"""

from __future__ import annotations

from kohort.protocol._struct import Message, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Message, api_key=0, versions="0"):
    """The transactional id."""

    transactional_id: String = field(default="")


class TransactionLogValue(Message, api_key=0, versions="0-1", flexible="1+"):
    """The producer and its transaction. Version 1 is for transaction version 2 (KIP-890)."""

    class PartitionsSchema(Struct):
        topic: String = field(default="")
        partition_ids: list[Int32] = field(default_factory=list)

    producer_id: Int64 = field(default=0)
    previous_producer_id: Int64 = field("1+", tag=0, default=-1)
    next_producer_id: Int64 = field("1+", tag=1, default=-1)
    producer_epoch: Int16 = field(default=0)
    next_producer_epoch: Int16 = field("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32 = field(default=0)
    transaction_status: Int8 = field(default=0)
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = field(
        nullable="0+", default_factory=list
    )
    transaction_last_update_timestamp_ms: Int64 = field(default=0)
    transaction_start_timestamp_ms: Int64 = field(default=0)
    client_transaction_version: Int16 = field("1+", tag=2, default=0)
