"""CreateDelegationToken (API 38), versions 1-3. Version 3 adds the owner."""

from __future__ import annotations

from kohort.broker.apis._delegation import not_allowed, split
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import CreateDelegationTokenRequest, CreateDelegationTokenResponse

_USER = "User"


@serves(CreateDelegationTokenRequest, (1, 3))
async def create_delegation_token(
    ctx: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = ctx.principal
    if ctx.version >= 3 and request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    kind, name = split(owner)
    requester = ctx.principal if ctx.version >= 3 else ""
    requester_kind, requester_name = split(requester)
    response = CreateDelegationTokenResponse(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
    response.error_code = not_allowed(ctx)
    if (
        not response.error_code
        and owner != ctx.principal
        and not ctx.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, owner)
    ):
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if not response.error_code and any(split(each)[0] != _USER for each in renewers):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if response.error_code:
        return response
    security = ctx.broker.cluster.security
    token = security.delegation.create(
        security.new_token_id(),
        owner,
        ctx.principal,
        renewers,
        request.max_lifetime_ms,
    )
    response.issue_timestamp_ms = token.issued_at_ms
    response.expiry_timestamp_ms = token.expires_at_ms
    response.max_timestamp_ms = token.max_at_ms
    response.token_id, response.hmac = token.id, token.hmac
    return response
