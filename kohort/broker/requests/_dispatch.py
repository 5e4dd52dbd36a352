"""Handling of one request: decode it, call the handler of its API, encode the response.

As in Kafka, an unknown version of ApiVersions gets a response in version 0. It has error 35 and the
range of ApiVersions alone. Any other unknown API or version ends the connection.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kohort.broker.apis import SERVED, CloseConnection, Context, Handler, api_versions
from kohort.broker.cluster._broker import Broker
from kohort.broker.requests._authorization import refusal
from kohort.broker.requests._failures import error_response
from kohort.broker.requests._faults import Faults, SendRate
from kohort.broker.security import ANONYMOUS, ClientLogin, Listener, Phase, Step
from kohort.errors import ErrorCode, MessageEncodeError
from kohort.protocol import (
    APIS,
    ApiKey,
    Buffer,
    Request,
    Response,
    decode_from,
    encode_response,
)
from kohort.protocol.messages import (
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    RequestHeader,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from kohort.types import NamedTuple


@dataclass(eq=False, slots=True)
class Channel:
    """One connection. ``client_host`` has Kafka's format: ``/127.0.0.1``."""

    client_host: str
    login: ClientLogin

    @classmethod
    def open(
        cls, broker: Broker, listener: Listener, peer_host: str, principal: str = ANONYMOUS
    ) -> Channel:
        """Return the channel of a new connection to a listener of a broker."""
        core = broker.cluster
        login = ClientLogin(core.security, listener, core.time, principal)
        return cls(f"/{peer_host}", login)


_HEAD = struct.Struct(">hhi")
_MAX_KEPT_BYTES = 16 * 1024
_MAX_KEPT_REQUESTS = 10_000
_CONSUMER_APIS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE)
_SHARE_APIS = (
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request that a broker has received.

    ``api`` is Kafka's name of the API. ``at`` is seconds of the cluster's clock. ``message`` is the
    decoded request, None for a request of more than 16 KiB.
    """

    node_id: int
    api: str
    version: int
    client_id: str
    client_host: str
    at: float
    message: Any | None


class ServedResponse(NamedTuple):
    """Buffers of a response frame. ``pace`` is the rate of sending, None for no limit.

    ``closes_connection``: the login failed, so the connection ends after the response.
    """

    frame: list[Buffer]
    pace: SendRate | None
    closes_connection: bool = False


def _authorized(handler: Handler[Any]) -> Handler[Any]:
    """Return a handler that refuses requests of principals without rights."""

    async def handle(ctx: Context, request: Request[Any]) -> Response | None:
        refused = refusal(ctx, request)
        return await handler(ctx, request) if refused is None else refused

    return handle


async def _unsupported(ctx: Context, request: Request[Any]) -> Response | None:
    """Refuse a request of a protocol that is off."""
    return error_response(ctx, request, ErrorCode.UNSUPPORTED_VERSION)


class OtherCluster(Protocol):
    """A cluster that answers the requests in place of this one."""

    def accept(self, request: Request[Any]) -> Request[Any]:
        """Return the request of a client as the rules and the cluster get it."""
        ...

    async def serve(self, ctx: Context, request: Request[Any]) -> Response | None: ...

    def begin(self, login: ClientLogin | None, has_ended: Callable[[], bool]) -> None:
        """Serve a new connection of a client. ``has_ended()`` is True if the client has gone."""
        ...

    async def end(self, login: ClientLogin | None) -> None:
        """Free what belongs to the connection of a client, which has ended."""
        ...


class RequestDispatcher:
    """Handling of all requests of a cluster, with its fault rules and its latest requests."""

    def __init__(self, seed: int) -> None:
        self.faults: Faults = Faults(seed)
        self.other: OtherCluster | None = None
        """The cluster behind a proxy, None if the brokers of this process answer."""
        self.requests: deque[ReceivedRequest] = deque(maxlen=_MAX_KEPT_REQUESTS)

    async def handle_frame(
        self, broker: Broker, channel: Channel, frame: Buffer
    ) -> ServedResponse | None:
        """Return the response to a request frame, None if the request has no response.

        Raises CloseConnection or MessageDecodeError for requests that end the connection.
        """
        if not broker.is_alive:
            raise CloseConnection("the broker was killed")
        if len(frame) < _HEAD.size:
            raise CloseConnection(f"a frame of {len(frame)} bytes is too short")
        key, version, correlation_id = _HEAD.unpack_from(frame)
        login = channel.login
        step = login.step(key)
        if step is Step.CLOSE:
            raise CloseConnection(f"API key {key} is not allowed, only {login.phase.value}")
        served = SERVED.get(key)
        if served is None:
            raise CloseConnection(f"API key {key} is not served")
        if version not in served.versions:
            if key == ApiKey.API_VERSIONS and step is Step.SERVE:
                # As in Kafka, a header that is too short ends the connection.
                decode_from(RequestHeader, 2, frame, 0)
                buffers = encode_response(api_versions.unsupported_version(), 0, correlation_id)
                return ServedResponse(buffers, None)
            raise CloseConnection(f"version {version} of {served.key.name} is not served")
        known = APIS[key].request
        header, start = decode_from(RequestHeader, 2 if version in known.flexible else 1, frame, 0)
        # As in Kafka, bytes after the request are ignored. librdkafka 2.16 sends some.
        request, _ = decode_from(known, version, frame, start)
        ctx = Context(
            broker, version, header.client_id or "", channel.client_host, login.principal, login
        )
        api = known.__name__.removesuffix("Request")
        cluster = broker.cluster
        kept = request if len(frame) <= _MAX_KEPT_BYTES else None
        self.requests.append(
            ReceivedRequest(
                broker.node.id, api, version, ctx.client_id, ctx.client_host, cluster.time(), kept
            )
        )
        response: Response | None
        if step is Step.REFUSE:
            login.fail()
            response, pace = _login_refusal(ctx, request), None
        else:
            handler = served.handler if cluster.authorizer is None else _authorized(served.handler)
            if key in _CONSUMER_APIS and not cluster.config.serves_consumer_groups:
                handler = _unsupported
            if key in _SHARE_APIS and not cluster.config.share_version:
                handler = _unsupported
            if self.other is not None:
                handler, request = self.other.serve, self.other.accept(request)
            response, pace = await self.faults.apply(ctx, api, request, handler)
            _update_login(login, response)
        if response is None:
            return None
        closes_connection = login.phase is Phase.FAILED
        try:
            return ServedResponse(
                encode_response(response, version, correlation_id), pace, closes_connection
            )
        except MessageEncodeError as error:
            if not isinstance(error.__cause__, struct.error) and "the bound is" not in str(error):
                raise
            # Names of nearly 32 KiB make messages and member ids longer than a string can be.
            raise CloseConnection(f"the response cannot be encoded: {error}") from error


def _login_refusal(ctx: Context, request: Request[Any]) -> Response:
    """Return the response to a request that is not allowed during a login.

    It contains only names from the request. CloseConnection for a request without a response.
    """
    if isinstance(request, ProduceRequest) and request.acks == 0:
        raise CloseConnection("Produce without acks is not allowed during the login")
    if isinstance(request, MetadataRequest):
        return MetadataResponse(
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    name=topic.name or "",
                    topic_id=topic.topic_id,
                    error_code=ErrorCode.ILLEGAL_SASL_STATE,
                )
                for topic in request.topics or ()
            ],
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
        )
    try:
        return error_response(ctx, request, ErrorCode.ILLEGAL_SASL_STATE)
    except AttributeError as error:
        raise CloseConnection("the request is not allowed during the login") from error


def _update_login(login: ClientLogin, response: Response | None) -> None:
    """Update the login by a response, which may come from a fault."""
    match response:
        case ApiVersionsResponse(error_code=ErrorCode.NONE):
            login.on_api_versions()
        case SaslHandshakeResponse(error_code=code) | SaslAuthenticateResponse(error_code=code):
            # The connection stays open: it has no SASL, or the client logs in again too early.
            early = login.phase is Phase.OPEN and code == ErrorCode.ILLEGAL_SASL_STATE
            if code != ErrorCode.NONE and not early:
                login.fail()
