"""RenewDelegationToken (API 39), versions 1-2."""

from __future__ import annotations

from kohort.broker.apis._delegation import expiry_of_refusal, find, is_expired
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import TOKEN_EXPIRY_MS
from kohort.errors import ErrorCode
from kohort.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@serves(RenewDelegationTokenRequest, (1, 2))
async def renew_delegation_token(
    ctx: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    token = find(ctx, bytes(request.hmac))
    if isinstance(token, ErrorCode):
        expiry_ms = expiry_of_refusal(token)
        return RenewDelegationTokenResponse(error_code=token, expiry_timestamp_ms=expiry_ms)
    if is_expired(ctx, token):
        return RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = TOKEN_EXPIRY_MS if request.renew_period_ms < 0 else request.renew_period_ms
    now_ms = ctx.broker.cluster.now_ms()
    token.expires_at_ms = min(token.max_at_ms, now_ms + period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_at_ms)
