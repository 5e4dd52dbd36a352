"""DescribeDelegationToken, API key 41: list tokens of some owners, or of all."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bytes, Int16, Int32, Int64, String


class DescribeDelegationTokenResponse(Response, api_key=41, versions="1-3", flexible="2+"):
    """Response to :class:`DescribeDelegationTokenRequest`."""

    class DescribedDelegationToken(Struct):
        principal_type: String = field(default="")
        principal_name: String = field(default="")
        token_requester_principal_type: String = field("3+", default="")
        token_requester_principal_name: String = field("3+", default="")
        issue_timestamp: Int64 = field(default=0)
        expiry_timestamp: Int64 = field(default=0)
        max_timestamp: Int64 = field(default=0)
        token_id: String = field(default="")
        hmac: Bytes = field(default=b"", secret=True)
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = field(
            default_factory=list
        )

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: String = field(default="")
        principal_name: String = field(default="")

    error_code: Int16 = field(default=0)
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = field(
        default_factory=list
    )
    throttle_time_ms: Int32 = field(default=0)


class DescribeDelegationTokenRequest(
    Request[DescribeDelegationTokenResponse], api_key=41, versions="1-3", flexible="2+"
):
    """Request for tokens. Null owners select all that the caller may see."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: String = field(default="")
        principal_name: String = field(default="")

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = field(
        nullable="0+", default_factory=list
    )
