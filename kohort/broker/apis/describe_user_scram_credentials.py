"""DescribeUserScramCredentials (API 50), version 0. It returns mechanisms and iterations, never
keys.
"""

from __future__ import annotations

from collections import Counter

from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import SCRAM_NUMBERS
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@serves(DescribeUserScramCredentialsRequest, (0, 0))
async def describe_user_scram_credentials(
    ctx: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    known = {user for user, _ in ctx.broker.cluster.security.credentials.scram}
    requested = Counter(user.name for user in request.users or ())
    users = requested if requested else Counter(sorted(known))
    results = [_describe(ctx, user, count) for user, count in users.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _describe(ctx: Context, user: str, count: int) -> _Result:
    if count > 1:
        return _Result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {user}",
        )
    scram = ctx.broker.cluster.security.credentials.scram
    found = [
        DescribeUserScramCredentialsResponse.CredentialInfo(
            mechanism=number, iterations=scram[user, mechanism].iterations
        )
        for number, mechanism in SCRAM_NUMBERS.items()
        if (user, mechanism) in scram
    ]
    if not found:
        return _Result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return _Result(user=user, error_message=None, credential_infos=found)
