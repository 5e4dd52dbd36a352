"""Methods that grant and revoke rights while clients run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kohort.broker.security import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    member_of,
)
from kohort.errors import IllegalStateError, InvalidOptionError
from kohort.testing._fault_control import Fault

if TYPE_CHECKING:
    from kohort.broker._cluster_server import ClusterServer

T = TypeVar("T")


class AclControl(ABC):
    """Methods of a cluster that change its ACLs.

    The cluster needs an authorizer: ``Security(authorization=Authorization())``. A change takes
    effect with the next request. Without an authorizer the methods raise IllegalStateError.

    ``principal`` is for example ``"User:bob"``, or ``"User:ANONYMOUS"`` for clients that do not log
    in. ``operations`` are Kafka's names such as ``"READ"``. The resource is a ``topic``, a
    ``group`` or a ``transactional_id``, and "*" selects all of them. Without any of these three the
    resource is the cluster. With ``is_prefix`` the given name is a prefix of resource names.
    """

    @abstractmethod
    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        """Run a function on the cluster in the cluster's event loop."""

    @property
    def acls(self) -> list[Acl]:
        """All ACLs, in the order of their creation."""
        return self._call(lambda server: _authorizer(server).acls)

    def grant(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        is_prefix: bool = False,
        host: str = "*",
    ) -> Fault:
        """Allow operations on a resource. Stopping the result removes the new rights."""
        acls = _acls(
            principal, operations, (topic, group, transactional_id), is_prefix, host, "ALLOW"
        )
        return self._add_acls(acls)

    def deny(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        is_prefix: bool = False,
        host: str = "*",
    ) -> Fault:
        """Deny operations on a resource, even allowed ones. Stopping the result ends the denial."""
        acls = _acls(
            principal, operations, (topic, group, transactional_id), is_prefix, host, "DENY"
        )
        return self._add_acls(acls)

    def revoke(
        self,
        principal: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> Fault:
        """Remove permissions of a principal. Stopping the result adds them again.

        Without operations all operations are removed. Without a resource the permissions on every
        resource are removed. Literal and prefixed ACLs with the given name are both removed.
        """
        names = {"TOPIC": topic, "GROUP": group, "TRANSACTIONAL_ID": transactional_id}
        kinds = {kind: name for kind, name in names.items() if name is not None}
        wanted = {member_of(AclOperation, operation) for operation in operations}

        def remove(server: ClusterServer) -> list[Acl]:
            authorizer = _authorizer(server)
            selected = AclFilter(
                principal=principal, pattern=PatternType.ANY, permission=AclPermission.ALLOW
            )
            found = [
                acl
                for acl in authorizer.find(selected)
                if (not wanted or acl.operation in wanted)
                and (not kinds or kinds.get(acl.resource_type.name) == acl.resource_name)
            ]
            authorizer.remove(found)
            return found

        removed = self._call(remove)

        def restore() -> None:
            self._call(lambda server: _authorizer(server).add(removed))

        return Fault(restore, lambda: 0)

    def _add_acls(self, acls: list[Acl]) -> Fault:
        added = self._call(lambda server: _authorizer(server).add(acls))

        def remove() -> None:
            self._call(lambda server: _authorizer(server).remove(added))

        return Fault(remove, lambda: 0)


def _acls(
    principal: str,
    operations: tuple[str, ...],
    names: tuple[str | None, str | None, str | None],
    is_prefix: bool,
    host: str,
    permission: str,
) -> list[Acl]:
    kinds = "TOPIC", "GROUP", "TRANSACTIONAL_ID"
    given = [(kind, name) for kind, name in zip(kinds, names, strict=True) if name is not None]
    if not operations:
        raise InvalidOptionError("no operations: give at least one operation, such as 'READ'")
    if len(given) > 1:
        raise InvalidOptionError(
            "two resources are given: give one of topic, group and transactional_id"
        )
    kind, name = given[0] if given else ("CLUSTER", "kafka-cluster")
    pattern = "PREFIXED" if is_prefix else "LITERAL"
    return [
        Acl(
            principal,
            operation,
            kind,
            name,
            pattern=pattern,
            permission=permission,
            host=host,
        )
        for operation in operations
    ]


def _authorizer(server: ClusterServer) -> Authorizer:
    if server.state.authorizer is None:
        raise IllegalStateError(
            "the cluster has no authorizer. Start it with "
            "security=Security(authorization=Authorization())"
        )
    return server.state.authorizer
