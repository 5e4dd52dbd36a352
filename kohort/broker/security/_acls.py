"""ACLs: operations that a principal may do on resources, and filters for ACLs.

The numbers are those of Kafka's protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from kohort.errors import InvalidOptionError

ANY_NAME = "*"
"""The name of a literal ACL for all resources of a type; also the host that matches all hosts."""
ANY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""


class ResourceType(IntEnum):
    """Kinds of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Ways to name resources. ACLs have LITERAL or PREFIXED, the others are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations that an ACL allows or denies."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """The effect of an ACL."""

    ANY = 1
    DENY = 2
    ALLOW = 3


E = TypeVar("E", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Acl:
    """ACL, such as ``Acl("User:bob", "READ", "TOPIC", "orders")``.

    Enumerations may be given by name, in any case. ``resource_name`` "*" means all resources of the
    type. With ``pattern`` "PREFIXED" it is a prefix of their names. InvalidOptionError for values
    that no ACL can have.
    """

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str = CLUSTER_NAME
    pattern: PatternType = PatternType.LITERAL
    permission: AclPermission = AclPermission.ALLOW
    host: str = ANY_NAME

    def __init__(
        self,
        principal: str,
        operation: AclOperation | str,
        resource_type: ResourceType | str,
        resource_name: str = CLUSTER_NAME,
        *,
        pattern: PatternType | str = PatternType.LITERAL,
        permission: AclPermission | str = AclPermission.ALLOW,
        host: str = ANY_NAME,
    ) -> None:
        values = {
            "principal": principal,
            "operation": member_of(AclOperation, operation),
            "resource_type": member_of(ResourceType, resource_type),
            "resource_name": resource_name,
            "pattern": member_of(PatternType, pattern),
            "permission": member_of(AclPermission, permission),
            "host": host,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        problem = self.problem()
        if problem is not None:
            raise InvalidOptionError(f"ACL for {principal!r}: {problem}")

    def problem(self) -> str | None:
        """Return the reason why Kafka refuses this ACL, None for a valid one."""
        if self.resource_type is ResourceType.ANY:
            return "Invalid resourceType ANY"
        if self.resource_type is ResourceType.CLUSTER and self.resource_name != CLUSTER_NAME:
            return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        if self.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            return f"Invalid patternType {self.pattern.name}"
        if self.operation is AclOperation.ANY:
            return "Invalid operation ANY"
        if self.permission is AclPermission.ANY:
            return "Invalid permissionType ANY"
        if not self.resource_name:
            return "Resource name should not be empty"
        if ":" not in self.principal:
            return (
                f"Could not parse principal from `{self.principal}` "
                "(no colon is present separating the principal type from the principal name)"
            )
        return None

    def is_about(self, resource_type: ResourceType, name: str) -> bool:
        """True if the ACL is for this resource, for any principal and operation."""
        if self.resource_type is not resource_type:
            return False
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, ANY_NAME)

    def is_for(self, principal: str, host: str) -> bool:
        """True if the ACL is for this principal on this host."""
        return self.principal in (principal, ANY_PRINCIPAL) and self.host in (host, ANY_NAME)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for ACLs; None matches every name, principal or host."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """True if the filter selects the ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.resource_name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, ANY_NAME)


def member_of(kind: type[E], value: E | str) -> E:
    """Return the member of an enumeration; InvalidOptionError for a name that it does not have."""
    if isinstance(value, kind):
        return value
    try:
        return kind[str(value).upper()]
    except KeyError:
        names = ", ".join(member.name for member in kind)
        raise InvalidOptionError(f"{value!r} is no {kind.__name__}. Use one of {names}") from None
