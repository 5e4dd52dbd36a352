"""AlterUserScramCredentials, API key 51: set and delete SCRAM credentials of users."""

from __future__ import annotations

from kohort.protocol._struct import Request, Response, Struct, field
from kohort.protocol._types import Bytes, Int8, Int16, Int32, String


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    """Response to :class:`AlterUserScramCredentialsRequest`."""

    class AlterUserScramCredentialsResult(Struct):
        user: String = field(default="")
        error_code: Int16 = field(default=0)
        error_message: String | None = field(nullable="0+", default="")

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = field(
        default_factory=list
    )


class AlterUserScramCredentialsRequest(
    Request[AlterUserScramCredentialsResponse], api_key=51, versions="0", flexible="0+"
):
    """Request to set and delete SCRAM credentials.

    Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
    """

    class ScramCredentialDeletion(Struct):
        name: String = field(default="")
        mechanism: Int8 = field(default=0)

    class ScramCredentialUpsertion(Struct):
        name: String = field(default="")
        mechanism: Int8 = field(default=0)
        iterations: Int32 = field(default=0)
        salt: Bytes = field(default=b"", secret=True)
        salted_password: Bytes = field(default=b"", secret=True)

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = field(
        default_factory=list
    )
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = field(
        default_factory=list
    )
