"""DeleteAcls (API 31), versions 1-3. The response has the ACLs that each filter selected."""

from __future__ import annotations

from kohort.broker.apis._acl_codes import DISABLED, DISABLED_MESSAGE, filter_of
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import Acl
from kohort.errors import ErrorCode
from kohort.protocol.messages import DeleteAclsRequest, DeleteAclsResponse

_Result = DeleteAclsResponse.DeleteAclsFilterResult
_Match = DeleteAclsResponse.DeleteAclsMatchingAcl


@serves(DeleteAclsRequest, (1, 3))
async def delete_acls(ctx: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    authorizer = ctx.broker.cluster.authorizer
    if authorizer is None:
        refused = _Result(error_code=DISABLED, error_message=DISABLED_MESSAGE)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    try:
        wanted = [filter_of(each) for each in request.filters]
    except ValueError as error:
        refused = _Result(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    # All filters select before any ACL is removed.
    found = [authorizer.find(each) for each in wanted]
    for acls in found:
        authorizer.remove(acls)
    return DeleteAclsResponse(
        filter_results=[
            _Result(error_message=None, matching_acls=[_match(acl) for acl in acls])
            for acls in found
        ]
    )


def _match(acl: Acl) -> _Match:
    return _Match(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
