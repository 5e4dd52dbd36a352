"""Decisions about requests by ACLs, by the rules of Kafka's StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from kohort.broker.security._acls import (
    ANY_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

_IMPLYING: Mapping[AclOperation, frozenset[AclOperation]] = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            {
                AclOperation.DESCRIBE,
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.DELETE,
                AclOperation.ALTER,
            }
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset(
            {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
        ),
    }
)
"""Operation -> operations whose permission implies it. Denials imply nothing."""

_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
    }
)
"""Operations that responses report for a resource, as bits by their numbers."""


def all_operations(kind: ResourceType) -> int:
    """Return all operations on a resource of this type as bits."""
    return sum(1 << operation for operation in _OPERATIONS[kind])


_PROBE_NAME = "hardcode"
_REMEMBERED_DECISIONS = 10_000


def decide(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    """Return True if the ACLs allow an operation on one resource.

    A denial overrides every permission. ``default`` is the result for a resource without any ACL.
    """
    is_known = is_allowed = False
    for acl in acls:
        if not acl.is_about(resource_type, name):
            continue
        is_known = True
        if not acl.is_for(principal, host) or not _covers(acl, operation):
            continue
        if acl.permission is AclPermission.DENY:
            return False
        is_allowed = True
    return is_allowed or (default and not is_known)


def _covers(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    is_allowing = acl.permission is AclPermission.ALLOW
    return is_allowing and acl.operation in _IMPLYING.get(operation, ())


class Authorizer:
    """The ACLs of a cluster and the decisions that follow from them.

    ``super_users``: principals such as ``User:admin`` that may do everything.
    """

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        super_users: Iterable[str] = (),
        *,
        allow_everyone_if_no_acl_found: bool = False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._acls: dict[Acl, None] = dict.fromkeys(acls)
        self._super_users = frozenset(super_users)
        self._default = allow_everyone_if_no_acl_found
        self._changed = changed
        self.version: int = 0
        """Number of changes of the ACLs so far."""
        self._decisions: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}

    # The ACLs

    @property
    def acls(self) -> list[Acl]:
        """All ACLs, in the order of their creation."""
        return list(self._acls)

    def add(self, acls: Iterable[Acl]) -> list[Acl]:
        """Add ACLs and return the new ones."""
        added = [acl for acl in dict.fromkeys(acls) if acl not in self._acls]
        self._acls.update(dict.fromkeys(added))
        self._forget_decisions()
        return added

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter selects."""
        return [acl for acl in self._acls if wanted.matches(acl)]

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs; unknown ones are ignored."""
        for acl in acls:
            self._acls.pop(acl, None)
        self._forget_decisions()

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.version += 1
        self._changed()

    # Decisions

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return True if the principal may do this on the resource; ``host`` without a slash."""
        if principal in self._super_users:
            return True
        key = principal, host, operation, resource_type, name
        known = self._decisions.get(key)
        if known is None:
            if len(self._decisions) >= _REMEMBERED_DECISIONS:
                self._decisions.clear()
            known = self._decisions[key] = decide(self._acls, *key, default=self._default)
        return known

    def allows_some(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return True if some resource of the type may exist on which this is allowed.

        An allowed pattern counts unless a denied one covers all of its names.
        """
        if self.allows(principal, host, operation, resource_type, _PROBE_NAME):
            return True
        mine = [
            acl
            for acl in self._acls
            if acl.resource_type is resource_type
            and acl.is_for(principal, host)
            and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = [acl for acl in mine if acl.permission is AclPermission.DENY]
        if any(_is_wildcard(acl) for acl in denied):
            return False
        return any(
            _is_wildcard(acl) or not any(_includes(other, acl) for other in denied)
            for acl in mine
            if acl.permission is AclPermission.ALLOW
        )

    def operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """Return the allowed operations on a resource as bits."""
        return sum(
            1 << operation
            for operation in _OPERATIONS[kind]
            if self.allows(principal, host, operation, kind, name)
        )


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern is PatternType.LITERAL and acl.resource_name == ANY_NAME


def _includes(outer: Acl, inner: Acl) -> bool:
    """True if the outer pattern matches every name that the inner pattern matches."""
    if outer.pattern is PatternType.PREFIXED:
        return inner.resource_name.startswith(outer.resource_name)
    return inner.pattern is PatternType.LITERAL and inner.resource_name == outer.resource_name
