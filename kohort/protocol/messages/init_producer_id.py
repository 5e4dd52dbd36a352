"""InitProducerId, API key 22: get a producer id and epoch, for idempotence and transactions.

Version 3 resumes an epoch (KIP-360).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Bool, Int16, Int32, Int64, String


class InitProducerIdResponse(Response, api_key=22, versions="0-6", flexible="2+"):
    """Response to :class:`InitProducerIdRequest`."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field(default=0)
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)


class InitProducerIdRequest(
    Request[InitProducerIdResponse], api_key=22, versions="0-6", flexible="2+"
):
    """Request to get a producer id and epoch, for idempotence and transactions."""

    transactional_id: String | None = field(nullable="0+", default="")
    transaction_timeout_ms: Int32 = field(default=0)
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)
