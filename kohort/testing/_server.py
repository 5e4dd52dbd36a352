"""The network side of a broker: its listener and its connections."""

from __future__ import annotations

import logging
import socket

import anyio
import anyio.lowlevel

from kohort.errors import FrameTooLargeError, MessageDecodeError
from kohort.testing._broker import Broker
from kohort.testing._dispatch import answer
from kohort.testing._socket import ByteConnection, FrameSource, SocketConnection
from kohort.testing.apis import CloseConnection

logger = logging.getLogger("kohort.testing")

_BACKLOG = 1024
_ACCEPT_PAUSE = 0.01


def listen(broker: Broker, port: int) -> socket.socket:
    """Open the broker's listener, from where on clients can connect; OSError if that fails."""
    host = broker.cluster.config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    broker.node.port = listener.getsockname()[1]
    return listener


async def serve_broker(broker: Broker, listener: socket.socket) -> None:
    """Serve until cancelled; closes the listener."""
    with listener:
        async with anyio.create_task_group() as connections:
            connections.start_soon(broker.coordinator.run)
            while True:
                await anyio.wait_readable(listener)
                try:
                    connection = _accept(listener)
                except OSError as error:
                    # It is gone again, or there are no file descriptors left: do not spin on it.
                    logger.debug("broker %d cannot accept: %s", broker.node.id, error)
                    await anyio.sleep(_ACCEPT_PAUSE)
                    continue
                connections.start_soon(serve_connection, broker, connection)


def _accept(listener: socket.socket) -> SocketConnection:
    sock, _ = listener.accept()
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketConnection(sock)
    except OSError:
        sock.close()
        raise


async def serve_connection(broker: Broker, connection: ByteConnection) -> None:
    """Answer the requests of one connection one after the other, as Kafka does.

    A request that has to wait holds up those behind it on its own connection, and no other.
    """
    client_host = f"/{connection.peer_host}"
    frames = FrameSource(connection, broker.cluster.config.max_request_bytes)
    try:
        while (frame := await frames.next()) is not None:
            response = await answer(broker, client_host, frame)
            if response is not None:
                await connection.send(response)
            # A busy connection must not keep the others from their turn.
            await anyio.lowlevel.checkpoint()
    except (CloseConnection, FrameTooLargeError, MessageDecodeError) as error:
        logger.info("broker %d closes on %s: %s", broker.node.id, client_host, error)
    except OSError as error:
        logger.debug("broker %d lost %s: %s", broker.node.id, client_host, error)
    except Exception:
        logger.exception("broker %d failed on a request of %s", broker.node.id, client_host)
    finally:
        with anyio.CancelScope(shield=True):
            await connection.aclose()
