"""Requests that another cluster answers, behind the listeners and the rules of this one.

Each connection of a client has a separate one to the broker behind its listener, because brokers
keep share sessions and acquired records by connection. Responses keep the ids of the brokers, and
name the listeners of this process as their addresses.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any

import anyio.to_thread

from kohort.broker._broker_node import BrokerNode
from kohort.broker._fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kohort.broker.apis import SERVED, CloseConnection, Context
from kohort.broker.network._server_connection import RequestFrames, SocketConnection
from kohort.broker.security import ClientLogin
from kohort.protocol import PREFIX_SIZE, Request, Response, decode_response, encode_request
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from kohort.types import NamedTuple

CONNECT_SECONDS = 10.0
_MAX_RESPONSE = (1 << 31) - 1
_METADATA_VERSION = 1
_LAST_API_VERSIONS = 3
"""Newer versions name the broker that the client expects, and old brokers do not know them."""


class RemoteBroker(NamedTuple):
    """A broker of the other cluster."""

    id: int
    host: str
    port: int


def find_brokers(host: str, port: int) -> list[RemoteBroker]:
    """Return the brokers of a cluster by their ids. Raise OSError if it cannot be reached."""
    with socket.create_connection((host, port), CONNECT_SECONDS) as sock:
        request = encode_request(MetadataRequest(topics=[]), _METADATA_VERSION, 1, "kohort-proxy")
        sock.sendall(b"".join(request))
        size = int.from_bytes(_read(sock, PREFIX_SIZE), "big")
        frame = _read(sock, size)
    _, response = decode_response(MetadataResponse, _METADATA_VERSION, frame)
    return sorted(RemoteBroker(each.node_id, each.host, each.port) for each in response.brokers)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError("it closed the connection. Is it a listener with TLS or a login?")
        data += part
    return data


class Relay:
    """The brokers of the other cluster, each behind a listener of this one."""

    def __init__(self, brokers: Sequence[RemoteBroker], nodes: Sequence[BrokerNode]) -> None:
        self._remote = {node.id: each for each, node in zip(brokers, nodes, strict=True)}
        self._nodes = {each.id: node for each, node in zip(brokers, nodes, strict=True)}
        self._connections: dict[ClientLogin | None, _RemoteConnection] = {}

    def accept(self, request: Request[Any]) -> Request[Any]:
        """Return the request for the other cluster, without a new fetch session.

        A fetch without a session names all its partitions, so a fault can fail each of them. In a
        session only the other cluster knows them.
        """
        if isinstance(request, FetchRequest) and request.session_epoch == INITIAL_EPOCH:
            request = copy(request)
            request.session_epoch = FINAL_EPOCH
        return request

    async def serve(self, ctx: Context, request: Request[Any]) -> Response | None:
        """Return the response of the other cluster. Raise CloseConnection if there is none."""
        version = ctx.version
        if isinstance(request, ApiVersionsRequest):
            version = min(version, _LAST_API_VERSIONS)
        remote = self._remote[ctx.broker.node.id]
        try:
            connection = self._connections.get(ctx.login)
            if connection is None:
                connect = partial(socket.create_connection, remote[1:], CONNECT_SECONDS)
                sock = await anyio.to_thread.run_sync(connect)
                connection = self._connections[ctx.login] = _RemoteConnection(sock)
            response = await connection.request(request, version, ctx.client_id)
        except OSError as error:
            raise CloseConnection(f"{remote.host}:{remote.port}: {error}") from error
        if isinstance(response, ApiVersionsResponse):
            response.api_keys = [*_known(response)]
        elif response is not None:
            self._name_listeners(ctx, response)
        return response

    async def end(self, login: ClientLogin | None) -> None:
        """Close the connection of a client that has gone."""
        connection = self._connections.pop(login, None)
        if connection is not None:
            await connection.aclose()

    def _name_listeners(self, ctx: Context, response: Any) -> None:
        for name in ("brokers", "coordinators", "node_endpoints"):
            for each in getattr(response, name, ()):
                self._name_listener(ctx, each)
        # Version 4 has the coordinators in a list, and the fields of version 3 with their defaults.
        if isinstance(response, FindCoordinatorResponse) and ctx.version < 4:
            self._name_listener(ctx, response)

    def _name_listener(self, ctx: Context, place: Any) -> None:
        node_id = place.broker_id if hasattr(place, "broker_id") else place.node_id
        node = self._nodes.get(node_id)
        if node is not None:
            place.host, place.port = node.host, ctx.port_of(node)


def _known(response: ApiVersionsResponse) -> Iterator[ApiVersionsResponse.ApiVersion]:
    """Yield the versions that the other cluster and this process have in common."""
    for each in response.api_keys:
        served = SERVED.get(each.api_key)
        if served is not None:
            each.min_version = max(each.min_version, served.versions.first)
            each.max_version = min(each.max_version, served.versions.last)
            if each.min_version <= each.max_version:
                yield each


class _RemoteConnection(SocketConnection):
    """A connection to a broker of the other cluster."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock)
        self._frames = RequestFrames(self, _MAX_RESPONSE)
        self._correlation_id = 0

    async def request(self, request: Request[Any], version: int, client_id: str) -> Response | None:
        """Send a request and return its response. Raise OSError if the connection ends."""
        self._correlation_id += 1
        await self.send(encode_request(request, version, self._correlation_id, client_id))
        if isinstance(request, ProduceRequest) and not request.acks:
            return None
        frame = await self._frames.next()
        if frame is None:
            raise ConnectionError("the broker closed the connection")
        found, response = decode_response(request.response, version, frame)
        if found != self._correlation_id:
            raise ConnectionError("the broker responded to another request")
        return response
