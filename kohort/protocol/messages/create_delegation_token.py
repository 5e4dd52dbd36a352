"""CreateDelegationToken, API key 38: issue a token that logs in as its owner."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bytes, Int16, Int32, Int64, String


class CreateDelegationTokenResponse(Response, api_key=38, versions="1-3", flexible="2+"):
    """Response to :class:`CreateDelegationTokenRequest`."""

    error_code: Int16 = field(default=0)
    principal_type: String = field(default="")
    principal_name: String = field(default="")
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64 = field(default=0)
    expiry_timestamp_ms: Int64 = field(default=0)
    max_timestamp_ms: Int64 = field(default=0)
    token_id: String = field(default="")
    hmac: Bytes = field(default=b"", secret=True)
    throttle_time_ms: Int32 = field(default=0)


class CreateDelegationTokenRequest(
    Request[CreateDelegationTokenResponse], api_key=38, versions="1-3", flexible="2+"
):
    """Request to issue a token for the caller, or from version 3 on for another owner."""

    class CreatableRenewers(Struct):
        principal_type: String = field(default="")
        principal_name: String = field(default="")

    owner_principal_type: String | None = field("3+", nullable="3+", default="")
    owner_principal_name: String | None = field("3+", nullable="3+", default="")
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: Int64 = field(default=0)
