"""One request: read it, let its API's handler answer, write the answer.

What Kafka does about versions: ApiVersions in a version that is not known is answered in version 0
with error 35 and its own range alone; anything else unknown ends the connection.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kohort.protocol import APIS, ApiKey, Buffer, decode_from, encode_response
from kohort.protocol.messages import RequestHeader
from kohort.testing._broker import Broker
from kohort.testing.apis import SERVED, CloseConnection, Context, api_versions

_HEAD = struct.Struct(">hhi")


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """What came to which broker; ``api`` is Kafka's name of it, ``at`` seconds of the clock."""

    node_id: int
    api: str
    version: int
    client_id: str
    client_host: str
    at: float


async def answer(broker: Broker, client_host: str, frame: Buffer) -> list[Buffer] | None:
    """The frame of the answer; None if there is none to this request.

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
            return encode_response(api_versions.unsupported_version(), 0, correlation_id)
        raise CloseConnection(f"version {version} of {served.key.name} is not served")
    known = APIS[key].request
    header, start = decode_from(RequestHeader, 2 if version in known.flexible else 1, frame, 0)
    # As in Kafka, bytes behind the request are left alone: librdkafka 2.16 sends some.
    request, _ = decode_from(known, version, frame, start)
    client_id = header.client_id or ""
    broker.cluster.received(broker.node.id, type(request).__name__, version, client_id, client_host)
    response = await served.handler(Context(broker, version, client_id, client_host), request)
    if response is None:
        return None
    return encode_response(response, version, correlation_id)
