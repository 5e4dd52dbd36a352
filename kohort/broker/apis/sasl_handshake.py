"""SaslHandshake (API 17), versions 0-1.

After version 0 the tokens have no header. A listener without SASL responds with error 34, and the
connection stays open. The same applies to a re-login that is too early.
"""

from __future__ import annotations

from kohort.broker.apis._registry import CloseConnection, Context, serves
from kohort.broker.security import LoginBrokenError
from kohort.errors import ErrorCode
from kohort.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse


@serves(SaslHandshakeRequest, (0, 1))
async def sasl_handshake(ctx: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    if ctx.login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    try:
        result = ctx.login.handshake(request.mechanism, ctx.version)
    except LoginBrokenError as error:
        raise CloseConnection(str(error)) from error
    return SaslHandshakeResponse(error_code=result.error, mechanisms=result.mechanisms)
