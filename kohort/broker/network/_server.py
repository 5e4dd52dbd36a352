"""The requests of one connection to a broker, over any network."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import anyio
import anyio.lowlevel

from kohort.broker.apis import CloseConnection
from kohort.broker.cluster._broker import Broker
from kohort.broker.network._server_connection import (
    RequestFrames,
    ServerConnection,
    SocketConnection,
)
from kohort.broker.requests._dispatch import Channel, RequestDispatcher
from kohort.broker.requests._faults import SendRate
from kohort.broker.security import ANONYMOUS, Listener, LoginBrokenError, Phase
from kohort.errors import ErrorCode, FrameTooLargeError, MessageDecodeError
from kohort.logs import error_text, get_logger
from kohort.protocol import Buffer

logger = get_logger("kohort.testing")

_SIZE = struct.Struct(">i")
BUSY_REQUESTS = 8
"""Requests of a connection after which the other tasks run, even if more have arrived."""


async def serve_connection(
    dispatcher: RequestDispatcher,
    broker: Broker,
    connection: ServerConnection,
    listener: Listener,
    principal: str = ANONYMOUS,
) -> None:
    """Respond to the requests of a connection in their order, as Kafka does.

    A request that waits delays the later ones of its connection, but no other connection.
    ``principal``: the user of the client certificate.
    """
    channel = Channel.open(broker, listener, connection.peer_host, principal)
    if dispatcher.other is not None and isinstance(connection, SocketConnection):
        dispatcher.other.begin(channel.login, connection.has_ended)
    limit = broker.cluster.config.max_request_bytes
    frames = RequestFrames(connection, limit)
    try:
        frames.max_size = channel.login.max_frame or limit
        served = 0
        while (frame := await frames.next()) is not None:
            if channel.login.phase is Phase.RAW_TOKENS:
                await _serve_token(broker, connection, channel, frame)
            else:
                await _serve_request(dispatcher, broker, connection, channel, frame)
            frames.max_size = channel.login.max_frame or limit
            # An idle connection must not keep the request or slices of a log in memory.
            del frame
            # A busy connection must not block the other tasks of the event loop.
            served += 1
            if served % BUSY_REQUESTS == 0:
                await anyio.lowlevel.checkpoint()
    except (CloseConnection, FrameTooLargeError, MessageDecodeError) as error:
        host = channel.client_host
        logger.info(
            "broker %d closes the connection of %s: %s", broker.node.id, host, error_text(error)
        )
    except OSError as error:
        host = channel.client_host
        logger.debug(
            "broker %d lost the connection of %s: %s", broker.node.id, host, error_text(error)
        )
    except Exception:
        host = channel.client_host
        logger.exception("broker %d failed on a request of %s", broker.node.id, host)
    finally:
        if broker.is_alive:
            # Records that the client of the connection has acquired go to other members.
            broker.share_leader.disconnect(channel.login)
        with anyio.CancelScope(shield=True):
            if dispatcher.other is not None:
                await dispatcher.other.end(channel.login)
            await connection.aclose()


async def _serve_request(
    dispatcher: RequestDispatcher,
    broker: Broker,
    connection: ServerConnection,
    channel: Channel,
    frame: bytearray,
) -> None:
    response = await dispatcher.handle_frame(broker, channel, frame)
    if response is None:
        return
    if response.closes_connection:
        await _delay_failure(broker)
    if response.pace is not None:
        await send_paced(connection, response.frame, response.pace, dispatcher.faults.rng)
    else:
        await connection.send(response.frame)
    if response.closes_connection:
        raise CloseConnection("the login failed")


async def _serve_token(
    broker: Broker, connection: ServerConnection, channel: Channel, frame: bytearray
) -> None:
    """Handle a token without a header, as after SaslHandshake version 0."""
    if not broker.is_alive:
        raise CloseConnection("the broker was killed")
    try:
        result = channel.login.authenticate(bytes(frame))
    except LoginBrokenError as error:
        raise CloseConnection(str(error)) from error
    if result.error is not ErrorCode.NONE:
        await _delay_failure(broker)
        raise CloseConnection("the login failed")
    await connection.send([_SIZE.pack(len(result.token)), result.token])


async def _delay_failure(broker: Broker) -> None:
    delay_ms = broker.cluster.security.settings.failed_authentication_delay_ms
    if delay_ms:
        await anyio.sleep(delay_ms / 1000)


async def send_paced(
    connection: ServerConnection, buffers: Sequence[Buffer], pace: SendRate, rng: random.Random
) -> None:
    """Send the buffers piece by piece."""
    data = memoryview(b"".join(buffers))
    sent = 0
    while sent < len(data):
        size = rng.randint(1, pace.piece)
        piece = data[sent : sent + size]
        await connection.send([piece])
        sent += len(piece)
        if pace.bytes_per_second:
            await anyio.sleep(len(piece) / pace.bytes_per_second)
        else:
            await anyio.lowlevel.checkpoint()
