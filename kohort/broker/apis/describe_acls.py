"""DescribeAcls (API 29), versions 1-3. Version 3 adds the resource type USER."""

from __future__ import annotations

from kohort.broker.apis._acl_codes import DISABLED, DISABLED_MESSAGE, filter_of
from kohort.broker.apis._registry import Context, serves
from kohort.broker.security import Acl, Authorizer, PatternType, ResourceType
from kohort.protocol.messages import DescribeAclsRequest, DescribeAclsResponse

_Resource = DescribeAclsResponse.DescribeAclsResource
_Entry = DescribeAclsResponse.AclDescription


@serves(DescribeAclsRequest, (1, 3))
async def describe_acls(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    authorizer = ctx.broker.cluster.authorizer
    if authorizer is None:
        return DescribeAclsResponse(error_code=DISABLED, error_message=DISABLED_MESSAGE)
    found: dict[tuple[ResourceType, str, PatternType], list[_Entry]] = {}
    for acl in _find(authorizer, request):
        entries = found.setdefault((acl.resource_type, acl.resource_name, acl.pattern), [])
        entries.append(
            _Entry(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(
        resources=[
            _Resource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in found.items()
        ],
    )


def _find(authorizer: Authorizer, request: DescribeAclsRequest) -> list[Acl]:
    try:
        return authorizer.find(filter_of(request))
    except ValueError:  # no ACL has a code that does not exist
        return []
