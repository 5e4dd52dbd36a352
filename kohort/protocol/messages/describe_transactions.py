"""DescribeTransactions, API key 65, KIP-664: state of transactions."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, Int64, String


class DescribeTransactionsResponse(Response, api_key=65, versions="0", flexible="0+"):
    """Response to :class:`DescribeTransactionsRequest`."""

    class TransactionState(Struct):
        error_code: Int16 = field(default=0)
        transactional_id: String = field(default="")
        transaction_state: String = field(default="")
        transaction_timeout_ms: Int32 = field(default=0)
        transaction_start_time_ms: Int64 = field(default=0)
        producer_id: Int64 = field(default=0)
        producer_epoch: Int16 = field(default=0)
        topics: list[DescribeTransactionsResponse.TopicData] = field(default_factory=list)

    class TopicData(Struct):
        topic: String = field(default="")
        partitions: list[Int32] = field(default_factory=list)

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[DescribeTransactionsResponse.TransactionState] = field(
        default_factory=list
    )


class DescribeTransactionsRequest(
    Request[DescribeTransactionsResponse], api_key=65, versions="0", flexible="0+"
):
    """State of transactions (KIP-664)."""

    transactional_ids: list[String] = field(default_factory=list)
