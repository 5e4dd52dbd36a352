"""DescribeDelegationToken (API 41), versions 1-3. Version 3 adds the requester of a token."""

from __future__ import annotations

from kohort.broker.apis._delegation import not_allowed, split
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import DelegationToken
from kohort.errors import ErrorCode
from kohort.protocol.messages import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

_Token = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


@serves(DescribeDelegationTokenRequest, (1, 3))
async def describe_delegation_token(
    ctx: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    error = not_allowed(ctx)
    if error is not ErrorCode.NONE:
        return DescribeDelegationTokenResponse(error_code=error)
    tokens = ctx.broker.cluster.security.delegation.all()
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
        tokens = [token for token in tokens if token.owner in owners]
    tokens = [
        token
        for token in tokens
        if token.may_renew(ctx.principal) or token.requester == ctx.principal
    ]
    return DescribeDelegationTokenResponse(tokens=[_described(ctx, token) for token in tokens])


def _described(ctx: Context, token: DelegationToken) -> _Token:
    kind, name = split(token.owner)
    requester_kind, requester_name = split(token.requester if ctx.version >= 3 else "")
    return _Token(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.id,
        hmac=token.hmac,
        renewers=[
            _Renewer(principal_type=kind, principal_name=name)
            for kind, name in map(split, token.renewers)
        ],
    )
