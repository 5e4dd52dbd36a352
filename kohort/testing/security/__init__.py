"""Security of the in-process cluster: who a client is and what it may do."""

from __future__ import annotations

from kohort.testing.security._acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kohort.testing.security._authorizer import Authorizer

__all__ = [
    "CLUSTER_NAME",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Authorizer",
    "PatternType",
    "ResourceType",
]
