"""EndTxn, API key 26: commit or abort a transaction.

Version 5 returns the next epoch (KIP-890).
"""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Bool, Int16, Int32, Int64, String


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    """Response to :class:`EndTxnRequest`."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)


class EndTxnRequest(Request[EndTxnResponse], api_key=26, versions="0-5", flexible="3+"):
    """Request to commit or abort a transaction."""

    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    committed: Bool = field(default=False)
