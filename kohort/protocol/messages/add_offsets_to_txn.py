"""AddOffsetsToTxn, API key 25: add a group's offsets to a transaction."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Int16, Int32, Int64, String


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    """Response to :class:`AddOffsetsToTxnRequest`."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class AddOffsetsToTxnRequest(
    Request[AddOffsetsToTxnResponse], api_key=25, versions="0-4", flexible="3+"
):
    """Request to add a group's offsets to a transaction."""

    transactional_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    group_id: String = field(default="")
