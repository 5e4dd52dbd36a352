"""Probes of the security protocol of a listener that did not respond.

Each probe uses a separate connection. It sends the requests of any client before a login and no
secret.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from kohort.errors import KafkaError, WrongListenerError
from kohort.protocol import decode_response, encode_request, messages
from kohort.transport._printable import address
from kohort.transport.connection._frames import FrameSource
from kohort.transport.connection._handshake import MAX_BYTES, secure, shake_hands
from kohort.transport.connection._pool import BufferPool
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.types import escaped

PROBE_SECONDS = 2.0
CLOSE_SECONDS = 0.5
SHOWN_MECHANISMS = 20


async def serves_plaintext(connect: Connect, host: str, port: int) -> bool:
    """Return True if a Kafka broker responds at this address without TLS."""
    try:
        async with _opened(connect, host, port):
            return True
    except (KafkaError, *NETWORK_ERRORS):
        return False


async def offered_mechanisms(connect: Connect, host: str, port: int) -> tuple[str, ...]:
    """Return the SASL mechanisms that a listener offers.

    The result is empty for a failure and for a listener without SASL.
    """
    with anyio.move_on_after(PROBE_SECONDS):
        try:
            async with _opened(connect, host, port) as (link, source):
                request = messages.SaslHandshakeRequest(mechanism="")
                await link.send(encode_request(request, 1, 1, ""))
                frame = await source.read()
                if frame is None:
                    return ()
                _, response = decode_response(messages.SaslHandshakeResponse, 1, frame.data)
                return tuple(sorted(response.mechanisms))
        except (KafkaError, *NETWORK_ERRORS):
            pass
    return ()


def wants_login(peer: str, offered: tuple[str, ...], *, tls: bool) -> WrongListenerError:
    """Return the error for a listener that requires a login from a client without one."""
    names = escaped(", ".join(offered[:SHOWN_MECHANISMS]))
    return WrongListenerError(
        f"{peer} wants a login: set security_protocol to {'SASL_SSL' if tls else 'SASL_PLAINTEXT'} "
        f"and sasl_mechanism to one that it offers ({names}), or use the port of another listener"
    )


@asynccontextmanager
async def _opened(
    connect: Connect, host: str, port: int
) -> AsyncIterator[tuple[ByteConnection, FrameSource]]:
    """Open a connection and exchange ApiVersions. Raises KafkaError and NETWORK_ERRORS."""
    peer = address(host, port)
    link = await connect(host, port)
    try:
        await secure(link, PROBE_SECONDS)
        source = FrameSource(link, BufferPool(), MAX_BYTES)
        await shake_hands(link, source, peer, "")
        yield link, source
    finally:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await link.aclose()
