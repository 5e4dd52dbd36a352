"""CreateAcls (API 30), versions 1-3. Creating an existing ACL again has no effect."""

from __future__ import annotations

from kohort.broker.apis._acl_codes import DISABLED, DISABLED_MESSAGE
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kohort.errors import ErrorCode, InvalidOptionError
from kohort.protocol.messages import CreateAclsRequest, CreateAclsResponse
from kohort.types import NamedTuple

_Result = CreateAclsResponse.AclCreationResult


@serves(CreateAclsRequest, (1, 3))
async def create_acls(ctx: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    authorizer = ctx.broker.cluster.authorizer
    count = len(request.creations)
    if authorizer is None:
        refused = _Result(error_code=DISABLED, error_message=DISABLED_MESSAGE)
        return CreateAclsResponse(results=[refused] * count)
    try:
        codes = [_codes(creation) for creation in request.creations]
    except ValueError as error:
        refused = _Result(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
        return CreateAclsResponse(results=[refused] * count)
    if any(each.is_filter for each in codes):
        # Kafka's controller fails on codes that only filters have.
        refused = _Result(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=None)
        return CreateAclsResponse(results=[refused] * count)
    made = [_acl(*each) for each in zip(request.creations, codes, strict=True)]
    authorizer.add(acl for acl in made if isinstance(acl, Acl))
    return CreateAclsResponse(
        results=[
            _Result()
            if isinstance(acl, Acl)
            else _Result(error_code=ErrorCode.INVALID_REQUEST, error_message=acl)
            for acl in made
        ]
    )


class _Codes(NamedTuple):
    """The enumeration values of a requested ACL."""

    operation: AclOperation
    kind: ResourceType
    pattern: PatternType
    permission: AclPermission

    @property
    def is_filter(self) -> bool:
        """True if one of the codes is valid only in a filter."""
        return (
            self.operation is AclOperation.ANY
            or self.kind is ResourceType.ANY
            or self.pattern in (PatternType.ANY, PatternType.MATCH)
            or self.permission is AclPermission.ANY
        )


def _codes(requested: CreateAclsRequest.AclCreation) -> _Codes:
    return _Codes(
        AclOperation(requested.operation),
        ResourceType(requested.resource_type),
        PatternType(requested.resource_pattern_type),
        AclPermission(requested.permission_type),
    )


def _acl(requested: CreateAclsRequest.AclCreation, codes: _Codes) -> Acl | str:
    """Return the ACL, or the reason why it is not valid."""
    if not requested.host:
        return "The host of an ACL must not be empty."
    try:
        return Acl(
            requested.principal,
            codes.operation,
            codes.kind,
            requested.resource_name,
            pattern=codes.pattern,
            permission=codes.permission,
            host=requested.host,
        )
    except InvalidOptionError as error:
        return str(error)
