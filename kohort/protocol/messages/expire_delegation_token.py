"""ExpireDelegationToken, API key 40: let a token expire, at once or later."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenResponse(Response, api_key=40, versions="1-2", flexible="2+"):
    """Response to :class:`ExpireDelegationTokenRequest`."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)


class ExpireDelegationTokenRequest(
    Request[ExpireDelegationTokenResponse], api_key=40, versions="1-2", flexible="2+"
):
    """Request to let a token expire. A negative period ends it at once."""

    hmac: Bytes = field(default=b"", secret=True)
    expiry_time_period_ms: Int64 = field(default=0)
