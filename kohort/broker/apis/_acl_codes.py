"""ACLs and filters in the format of requests and responses."""

from __future__ import annotations

from typing import Protocol

from kohort.broker.security import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kohort.errors import ErrorCode

DISABLED = ErrorCode.SECURITY_DISABLED
DISABLED_MESSAGE = "No Authorizer is configured."


class Filter(Protocol):
    """Fields of a filter in DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def filter_of(requested: Filter) -> AclFilter:
    """Return the filter; ValueError for codes that do not exist."""
    return AclFilter(
        ResourceType(requested.resource_type_filter),
        requested.resource_name_filter,
        PatternType(requested.pattern_type_filter),
        requested.principal_filter,
        requested.host_filter,
        AclOperation(requested.operation),
        AclPermission(requested.permission_type),
    )
