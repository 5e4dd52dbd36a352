"""SaslAuthenticate (API 36), versions 0-2.

Version 1 adds the lifetime of the session. The message of a response without error is empty.
"""

from __future__ import annotations

from kohort.broker.apis._registry import CloseConnection, Context, serves
from kohort.broker.security import LoginBrokenError
from kohort.errors import ErrorCode
from kohort.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse


@serves(SaslAuthenticateRequest, (0, 2))
async def sasl_authenticate(
    ctx: Context, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    if ctx.login is None:
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        result = ctx.login.authenticate(bytes(request.auth_bytes))
    except LoginBrokenError as error:
        raise CloseConnection(str(error)) from error
    return SaslAuthenticateResponse(
        error_code=result.error,
        error_message=result.message,
        auth_bytes=result.token,
        session_lifetime_ms=result.lifetime_ms,
    )
