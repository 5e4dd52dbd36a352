"""RenewDelegationToken, API key 39: move the time when a token expires."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Bytes, Int16, Int32, Int64


class RenewDelegationTokenResponse(Response, api_key=39, versions="1-2", flexible="2+"):
    """Response to :class:`RenewDelegationTokenRequest`."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)


class RenewDelegationTokenRequest(
    Request[RenewDelegationTokenResponse], api_key=39, versions="1-2", flexible="2+"
):
    """Request to move the time when a token expires, at most to the end of its life."""

    hmac: Bytes = field(default=b"", secret=True)
    renew_period_ms: Int64 = field(default=0)
