"""The served APIs: their handlers and versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from kohort.broker._broker_node import BrokerNode
from kohort.broker.cluster._broker import Broker
from kohort.broker.groups import Caller
from kohort.broker.security import (
    ANONYMOUS,
    CLUSTER_NAME,
    AclOperation,
    ClientLogin,
    ResourceType,
    all_operations,
)
from kohort.errors import ErrorCode
from kohort.protocol import ApiKey, Request, Response, VersionRange
from kohort.types import NamedTuple

AUTHORIZATION_FAILED = "Authorization failed."
"""Kafka's message for topics that a client may not create."""
_REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def refusal_message(error: ErrorCode) -> str:
    """Return Kafka's message for an error about rights."""
    return _REFUSALS[error]


class CloseConnection(Exception):
    """Error that closes the connection without a response, where Kafka does the same."""


@dataclass(frozen=True, slots=True)
class Context:
    """Sender and receiver of a request, and the version of its API.

    ``client_host`` has Kafka's format: ``/127.0.0.1``. ``principal`` is the user who logged in,
    such as ``User:alice``. ``login`` is that of the connection.
    """

    broker: Broker
    version: int
    client_id: str
    client_host: str
    principal: str = ANONYMOUS
    login: ClientLogin | None = None

    @property
    def connection(self) -> Hashable:
        """Identity of the connection."""
        return self.login

    @property
    def caller(self) -> Caller:
        return Caller(
            self.client_id,
            self.client_host,
            self.version,
            lambda topic: self.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic),
        )

    @property
    def listener(self) -> str:
        """Name of the listener that the client is connected to."""
        if self.login is None:
            return self.broker.cluster.config.listeners[0].name
        return self.login.listener.name

    def port_of(self, node: BrokerNode) -> int:
        """Return the port of a broker for this client, which is that of the same listener."""
        return node.ports[self.listener]

    def allows(self, operation: AclOperation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """True if the principal may do this, and always without an authorizer."""
        authorizer = self.broker.cluster.authorizer
        if authorizer is None:
            return True
        host = self.client_host.removeprefix("/")
        return authorizer.allows(self.principal, host, operation, kind, name)

    def allows_some(self, operation: AclOperation, kind: ResourceType) -> bool:
        """True if the principal may do this on some resource of the type."""
        authorizer = self.broker.cluster.authorizer
        host = self.client_host.removeprefix("/")
        return authorizer is None or authorizer.allows_some(self.principal, host, operation, kind)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the principal may do on a resource, as bits."""
        authorizer = self.broker.cluster.authorizer
        if authorizer is None:
            return all_operations(kind)
        host = self.client_host.removeprefix("/")
        return authorizer.operations(self.principal, host, kind, name)


R = TypeVar("R", bound=Request[Any])
Handler = Callable[[Context, R], Awaitable[Response | None]]


class Served(NamedTuple):
    """A served API. ``advertised`` is the range in ApiVersions, which may be larger than
    ``versions``.
    """

    key: ApiKey
    versions: VersionRange
    advertised: VersionRange
    handler: Handler[Any]


SERVED: dict[int, Served] = {}


def serves(
    request: type[R], versions: tuple[int, int], advertised: tuple[int, int] | None = None
) -> Callable[[Handler[R]], Handler[R]]:
    """Register a handler, which returns None for a request without a response."""

    def register(handler: Handler[R]) -> Handler[R]:
        supported = VersionRange(*versions)
        advertised_range = VersionRange(*advertised) if advertised else supported
        SERVED[request.api_key] = Served(
            ApiKey(request.api_key), supported, advertised_range, handler
        )
        return handler

    return register
