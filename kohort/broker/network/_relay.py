"""Requests that another cluster answers, behind the listeners and the rules of this one.

Each connection of a client has a separate one to the broker behind its listener, because brokers
keep share sessions and acquired records by connection. Responses keep the ids of the brokers, and
name the listeners of this process as their addresses.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from copy import copy
from typing import Any

import anyio
import anyio.to_thread

from kohort.broker._broker_node import BrokerNode
from kohort.broker._fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kohort.broker.apis import SERVED, CloseConnection, Context
from kohort.broker.network._server_connection import RequestFrames, SocketConnection
from kohort.broker.security import ClientLogin
from kohort.errors import ErrorCode, FrameTooLargeError, MessageDecodeError, ProtocolError
from kohort.logs import get_logger
from kohort.protocol import (
    PREFIX_SIZE,
    Request,
    Response,
    decode_response,
    encode_request,
    frame_size,
)
from kohort.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)
from kohort.types import NamedTuple, escaped

logger = get_logger("kohort.testing")

CONNECT_SECONDS = 10.0
_MAX_RESPONSE = (1 << 31) - 1
_MAX_METADATA = 1 << 20
"""Largest response that has brokers and no topic. It needs about 50 bytes for each broker."""
_PIECE = 1 << 16
_METADATA_VERSION = 1
_LAST_API_VERSIONS = 3
"""Newer versions name the broker that the client expects, and old brokers do not know them."""
_WATCH_SECONDS = 1.0
"""Time between looks at a client that waits for a response."""


class RemoteBroker(NamedTuple):
    """A broker of the other cluster."""

    id: int
    host: str
    port: int


def find_brokers(servers: Sequence[tuple[str, int]]) -> list[RemoteBroker]:
    """Return the brokers of a cluster by their ids, from the first server that responds.

    Raises OSError, with the address of the last server, if none is a broker.
    """
    failed = OSError("there is no server")
    for host, port in servers:
        try:
            return _brokers_of(host, port)
        except (OSError, ProtocolError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            failed = OSError(f"{host}:{port}: {reason}")
    raise failed


def _brokers_of(host: str, port: int) -> list[RemoteBroker]:
    with socket.create_connection((host, port), CONNECT_SECONDS) as sock:
        request = encode_request(MetadataRequest(topics=[]), _METADATA_VERSION, 1, "kohort-proxy")
        sock.sendall(b"".join(request))
        size = frame_size(_read(sock, PREFIX_SIZE), _MAX_METADATA)
        frame = _read(sock, size)
    _, response = decode_response(MetadataResponse, _METADATA_VERSION, frame)
    if not response.brokers:
        raise ConnectionError("it knows no broker yet. Start the proxy again later")
    return sorted(RemoteBroker(each.node_id, each.host, each.port) for each in response.brokers)


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(min(size - len(data), _PIECE))
        if not part:
            raise ConnectionError("it closed the connection. Is it a listener with TLS or a login?")
        data += part
    return bytes(data)


class Relay:
    """The brokers of the other cluster, each behind a listener of this one."""

    def __init__(self, brokers: Sequence[RemoteBroker], nodes: Sequence[BrokerNode]) -> None:
        self._remote = {node.id: each for each, node in zip(brokers, nodes, strict=True)}
        self._nodes = {each.id: node for each, node in zip(brokers, nodes, strict=True)}
        self._connections: dict[ClientLogin | None, _RemoteConnection] = {}
        self._unknown: set[int] = set()
        self._have_ended: dict[ClientLogin | None, Callable[[], bool]] = {}

    def accept(self, request: Request[Any]) -> Request[Any]:
        """Return the request for the other cluster, without a new fetch session.

        A fetch without a session names all its partitions, so a fault can fail each of them. In a
        session only the other cluster knows them.
        """
        if isinstance(request, FetchRequest) and request.session_epoch == INITIAL_EPOCH:
            whole = copy(request)
            whole.session_epoch = FINAL_EPOCH
            return whole
        return request

    async def serve(self, ctx: Context, request: Request[Any]) -> Response | None:
        """Return the response of the other cluster. Raise CloseConnection if there is none."""
        remote = self._remote[ctx.broker.node.id]
        response: Response | None = None
        failure: Exception | None = ConnectionError("the client has gone")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_at_end, self._have_ended[ctx.login], tasks.cancel_scope)
            try:
                connection = await self._connection(ctx.login, remote)
                response = await connection.serve(request, ctx)
                failure = None
            except (OSError, FrameTooLargeError, MessageDecodeError) as error:
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise CloseConnection(f"{remote.host}:{remote.port}: {failure}") from failure
        if isinstance(response, ApiVersionsResponse):
            response.api_keys = [*_known(response)]
        elif response is not None:
            self._name_listeners(ctx, response)
        return response

    def begin(self, login: ClientLogin | None, has_ended: Callable[[], bool]) -> None:
        """Serve a new connection of a client, whose requests end with it."""
        self._have_ended[login] = has_ended

    async def end(self, login: ClientLogin | None) -> None:
        """Close the connection of a client that has gone."""
        self._have_ended.pop(login, None)
        connection = self._connections.pop(login, None)
        if connection is not None:
            await connection.aclose()

    async def _connection(
        self, login: ClientLogin | None, remote: RemoteBroker
    ) -> _RemoteConnection:
        connection = self._connections.get(login)
        if connection is not None and connection.has_ended():
            # Brokers close idle connections. The request must not be lost, as it is no fault.
            del self._connections[login]
            await connection.aclose()
            connection = None
        if connection is None:
            connection = await anyio.to_thread.run_sync(_connect, remote)
            self._connections[login] = connection
        return connection

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
        elif node_id >= 0 and node_id not in self._unknown:  # -1: there is no broker
            self._unknown.add(node_id)
            logger.warning(
                "broker %d at %s:%d has no listener of the proxy, so clients connect to it without "
                "faults. Start the proxy again",
                node_id,
                escaped(place.host),
                place.port,
            )


def _known(response: ApiVersionsResponse) -> Iterator[ApiVersionsResponse.ApiVersion]:
    """Yield the versions that the other cluster and this process have in common."""
    for each in response.api_keys:
        served = SERVED.get(each.api_key)
        if served is not None:
            each.min_version = max(each.min_version, served.versions.first)
            each.max_version = min(each.max_version, served.versions.last)
            if each.min_version <= each.max_version:
                yield each


async def _cancel_at_end(has_ended: Callable[[], bool], scope: anyio.CancelScope) -> None:
    """Cancel the request of a client that has gone, because its broker may never respond."""
    await anyio.sleep(_WATCH_SECONDS)  # what the client sent before its end is still forwarded
    while not has_ended():  # noqa: ASYNC110  # the socket is readable, too, if requests wait
        await anyio.sleep(_WATCH_SECONDS)
    scope.cancel()


def _connect(remote: RemoteBroker) -> _RemoteConnection:
    with ExitStack() as opened:
        sock = socket.create_connection((remote.host, remote.port), CONNECT_SECONDS)
        opened.callback(sock.close)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = _RemoteConnection(sock)
        opened.pop_all()
    return connection


class _RemoteConnection(SocketConnection):
    """A connection to a broker of the other cluster."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._frames = RequestFrames(self, _MAX_RESPONSE)
        self._correlation_id = 0

    async def serve(self, request: Request[Any], ctx: Context) -> Response | None:
        """Return the response to the request of a client. Raise OSError if the connection ends."""
        if not isinstance(request, ApiVersionsRequest):
            return await self._request(request, ctx.version, ctx.client_id)
        try:
            version = min(ctx.version, _LAST_API_VERSIONS)
            response = await self._request(request, version, ctx.client_id)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:  # type: ignore[union-attr]
                return response
        except MessageDecodeError:
            pass  # brokers before Kafka 2.4 refuse version 3 in the format of version 0
        return await self._request(ApiVersionsRequest(), 0, ctx.client_id)

    async def _request(
        self, request: Request[Any], version: int, client_id: str
    ) -> Response | None:
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
