"""Rules that the four APIs of delegation tokens share."""

from __future__ import annotations

from kohort.broker.apis._registry import Context
from kohort.broker.security import ANONYMOUS, DelegationToken
from kohort.errors import ErrorCode


def not_allowed(ctx: Context) -> ErrorCode:
    """Return the error for a client that may not use delegation tokens, NONE for others.

    It needs a login by SASL or by a client certificate, but not by a delegation token.
    """
    login = ctx.login
    if login is None or login.by_token or login.listener.protocol == "PLAINTEXT":
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if login.listener.protocol == "SSL" and ctx.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.NONE


def find(ctx: Context, hmac: bytes) -> DelegationToken | ErrorCode:
    """Return a token that the caller may change."""
    error = not_allowed(ctx)
    if error is not ErrorCode.NONE:
        return error
    delegation = ctx.broker.cluster.security.delegation
    token = delegation.by_hmac(hmac)
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if not token.may_renew(ctx.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return token


def expiry_of_refusal(error: ErrorCode) -> int:
    """Return the expiry in the response to a refused change of a token."""
    return -1 if error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0


def is_expired(ctx: Context, token: DelegationToken) -> bool:
    """True if the token has expired."""
    return ctx.broker.cluster.security.delegation.has_expired(token)


def split(principal: str) -> tuple[str, str]:
    """Return type and name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
