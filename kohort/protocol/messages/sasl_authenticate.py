"""SaslAuthenticate, API key 36: carry SASL tokens."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, field
from kohort.protocol._types import Bytes, Int16, Int64, String


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    """Response to :class:`SaslAuthenticateRequest`."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    auth_bytes: Bytes = field(default=b"", secret=True)
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)


class SaslAuthenticateRequest(
    Request[SaslAuthenticateResponse], api_key=36, versions="0-2", flexible="2+"
):
    """Request to carry SASL tokens."""

    auth_bytes: Bytes = field(default=b"", secret=True)
