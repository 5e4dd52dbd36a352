"""The network of TCP: each broker listens on a port of its own."""

from __future__ import annotations

import logging
import os
import socket

import anyio
from anyio.abc import TaskGroup

from kohort.testing._broker import Broker
from kohort.testing._configs import ClusterConfig
from kohort.testing._server import serve_connection
from kohort.testing._socket import SocketConnection

logger = logging.getLogger("kohort.testing")

_BACKLOG = 1024
_ACCEPT_PAUSE = 0.01


class LoopbackNetwork:
    """The ports of brokers that are down are held, and connecting to them is refused."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        self._listeners: dict[int, socket.socket] = {}
        self._held: dict[int, socket.socket] = {}

    def listen(self, broker: Broker) -> None:
        """OSError if the port cannot be had."""
        node = broker.node
        if (held := self._held.pop(node.id, None)) is not None:
            held.close()
        address = (
            self._config.host,
            node.port or self._config.port_of(self._config.index_of(node.id)),
        )
        try:
            listener = socket.create_server(address, family=self._family, backlog=_BACKLOG)
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot listen on {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}",
            ) from error
        listener.setblocking(False)
        node.port = listener.getsockname()[1]
        self._listeners[node.id] = listener

    async def serve(self, broker: Broker, tasks: TaskGroup) -> None:
        listener = self._listeners[broker.node.id]
        while True:
            await anyio.wait_readable(listener)
            try:
                # All that wait: were it one a turn of the loop, the members of a large group would
                # come in one by one, and each would start the rebalance of all the others anew.
                for _ in range(_BACKLOG):
                    tasks.start_soon(serve_connection, broker, _accept(listener))
            except BlockingIOError:
                continue
            except OSError as error:
                # It is gone again, or there are no file descriptors left: do not spin on it.
                logger.debug("broker %d cannot accept: %s", broker.node.id, str(error))
                await anyio.sleep(_ACCEPT_PAUSE)

    def ended(self, broker: Broker) -> None:
        node = broker.node
        self._listeners.pop(node.id).close()
        held = self._held[node.id] = socket.socket(self._family)
        try:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((self._config.host, node.port))
        except OSError as error:
            # Somebody was faster. Starting the broker again will say so.
            logger.warning("port %d of broker %d is lost: %s", node.port, node.id, str(error))

    def close(self) -> None:
        for sock in (*self._listeners.values(), *self._held.values()):
            sock.close()
        self._listeners.clear()
        self._held.clear()


def _accept(listener: socket.socket) -> SocketConnection:
    sock, _ = listener.accept()
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return SocketConnection(sock)
    except OSError:
        sock.close()
        raise
