"""ExpireDelegationToken (API 40), versions 1-2. A negative period removes the token immediately."""

from __future__ import annotations

from kohort.broker.apis._delegation import expiry_of_refusal, find, is_expired
from kohort.broker.apis._registry import Context, serves
from kohort.errors import ErrorCode
from kohort.protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@serves(ExpireDelegationTokenRequest, (1, 2))
async def expire_delegation_token(
    ctx: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    token = find(ctx, bytes(request.hmac))
    if isinstance(token, ErrorCode):
        expiry_ms = expiry_of_refusal(token)
        return ExpireDelegationTokenResponse(error_code=token, expiry_timestamp_ms=expiry_ms)
    now_ms = ctx.broker.cluster.now_ms()
    if request.expiry_time_period_ms < 0:
        ctx.broker.cluster.security.delegation.remove(token)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
    if is_expired(ctx, token):
        return ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
    token.expires_at_ms = min(token.max_at_ms, now_ms + request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expires_at_ms)
