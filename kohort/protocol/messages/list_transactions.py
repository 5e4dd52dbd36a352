"""ListTransactions, API key 66, KIP-664: transactions that a broker coordinates."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int16, Int32, Int64, String


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    """Response to :class:`ListTransactionsRequest`."""

    class TransactionState(Struct):
        transactional_id: String = field(default="")
        producer_id: Int64 = field(default=0)
        transaction_state: String = field(default="")

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[String] = field(default_factory=list)
    transaction_states: list[ListTransactionsResponse.TransactionState] = field(
        default_factory=list
    )


class ListTransactionsRequest(
    Request[ListTransactionsResponse], api_key=66, versions="0-2", flexible="0+"
):
    """Transactions that a broker coordinates (KIP-664)."""

    state_filters: list[String] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: String | None = field("2+", nullable="2+", default=None)
