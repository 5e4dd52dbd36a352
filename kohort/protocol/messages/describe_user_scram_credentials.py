"""DescribeUserScramCredentials, API key 50: list mechanisms and iterations of users."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Int8, Int16, Int32, String


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    """Response to :class:`DescribeUserScramCredentialsRequest`."""

    class DescribeUserScramCredentialsResult(Struct):
        user: String = field(default="")
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = field(
            default_factory=list
        )

    class CredentialInfo(Struct):
        mechanism: Int8 = field(default=0)
        iterations: Int32 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(nullable="0+", default="")
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = field(
        default_factory=list
    )


class DescribeUserScramCredentialsRequest(
    Request[DescribeUserScramCredentialsResponse], api_key=50, versions="0", flexible="0+"
):
    """Request for the SCRAM credentials of users. Null or an empty list selects all users."""

    class UserName(Struct):
        name: String = field(default="")

    users: list[DescribeUserScramCredentialsRequest.UserName] | None = field(
        nullable="0+", default_factory=list
    )
