"""One request: read it, let its API's handler answer, write the answer.

What Kafka does about versions: ApiVersions in a version that is not known is answered in version 0
with error 35 and its own range alone; anything else unknown ends the connection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from kohort.errors import MessageEncodeError
from kohort.protocol import APIS, ApiKey, Buffer, Request, decode_from, encode_response
from kohort.protocol.messages import RequestHeader
from kohort.testing._broker import Broker
from kohort.testing._pace import Pace
from kohort.testing.apis import SERVED, CloseConnection, Context, api_versions

_HEAD = struct.Struct(">hhi")
_KEPT_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """What came to which broker; ``api`` is Kafka's name of it, ``at`` seconds of the clock.

    ``message`` is the request itself, None for one of more than 16 KiB.
    """

    node_id: int
    api: str
    version: int
    client_id: str
    client_host: str
    at: float
    message: Request[Any] | None


class Reply(NamedTuple):
    """The frame of an answer, and how it is to be sent; None for all at once."""

    frame: list[Buffer]
    pace: Pace | None


async def answer(broker: Broker, client_host: str, frame: Buffer) -> Reply | None:
    """The answer; None if there is none to this request.

    Raises CloseConnection or MessageDecodeError for what ends the connection.
    """
    if not broker.alive:
        raise CloseConnection("the broker is dead")
    if len(frame) < _HEAD.size:
        raise CloseConnection(f"a frame of {len(frame)} bytes")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    served = SERVED.get(key)
    if served is None:
        raise CloseConnection(f"API key {key} is not served")
    if version not in served.versions:
        if key == ApiKey.API_VERSIONS:
            frame_of_it = encode_response(api_versions.unsupported_version(), 0, correlation_id)
            return Reply(frame_of_it, None)
        raise CloseConnection(f"version {version} of {served.key.name} is not served")
    known = APIS[key].request
    header, start = decode_from(RequestHeader, 2 if version in known.flexible else 1, frame, 0)
    # As in Kafka, bytes behind the request are left alone: librdkafka 2.16 sends some.
    request, _ = decode_from(known, version, frame, start)
    ctx = Context(broker, version, header.client_id or "", client_host)
    api = known.__name__.removesuffix("Request")
    cluster = broker.cluster
    kept = request if len(frame) <= _KEPT_BYTES else None
    cluster.requests.append(
        ReceivedRequest(
            broker.node.id, api, version, ctx.client_id, client_host, cluster.time(), kept
        )
    )
    response, pace = await cluster.faults.answer(ctx, api, request, served.handler)
    if response is None:
        return None
    try:
        return Reply(encode_response(response, version, correlation_id), pace)
    except MessageEncodeError as error:
        if not isinstance(error.__cause__, struct.error) and "the bound is" not in str(error):
            raise
        # Names of nearly 32 KiB make messages and member ids longer than a string may be.
        raise CloseConnection(f"an answer that cannot be written: {error}") from error
