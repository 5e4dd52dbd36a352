"""The network of TCP: each listener of each broker has a separate port."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial

import anyio
from anyio.abc import TaskGroup

from kohort.broker.cluster._broker import Broker
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.network._server import serve_connection
from kohort.broker.network._server_connection import SocketConnection
from kohort.broker.network._tls_socket import accept_tls
from kohort.broker.requests._dispatch import RequestDispatcher
from kohort.broker.security import Listener
from kohort.logs import error_text, get_logger

logger = get_logger("kohort.testing")

ServeSocket = Callable[[socket.socket], Coroutine[object, object, None]]

_BACKLOG = 1024
_ACCEPT_PAUSE = 0.01


class LoopbackNetwork:
    """Ports of brokers. The ports of stopped brokers stay reserved and refuse connections."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        self._listeners: dict[int, list[tuple[Listener, socket.socket]]] = {}
        self._reserved: dict[int, list[socket.socket]] = {}

    def listen(self, broker: Broker) -> None:
        """Open the broker's ports.

        OSError if a port is not available, InvalidOptionError if a certificate cannot be created.
        """
        for listener in self._config.listeners:
            if listener.uses_tls:
                broker.cluster.security.context(listener, None)
        node = broker.node
        for reserved in self._reserved.pop(node.id, ()):
            reserved.close()
        with ExitStack() as opened:
            listening = []
            for listener in self._config.listeners:
                given = self._config.port_of(self._config.index_of(node.id), listener)
                sock = self._open(node.ports[listener.name] or given)
                opened.callback(sock.close)
                listening.append((listener, sock))
            opened.pop_all()
        for listener, sock in listening:
            node.ports[listener.name] = sock.getsockname()[1]
        self._listeners[node.id] = listening

    def _open(self, port: int) -> socket.socket:
        host = self._config.host
        try:
            sock = socket.create_server((host, port), family=self._family, backlog=_BACKLOG)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
            ) from error
        sock.setblocking(False)
        return sock

    async def serve(self, broker: Broker, dispatcher: RequestDispatcher, tasks: TaskGroup) -> None:
        async with anyio.create_task_group() as accepting:
            for listener, sock in self._listeners[broker.node.id]:
                serve = _serve_tls if listener.uses_tls else _serve_plain
                serve_socket = partial(serve, dispatcher, broker, listener)
                accepting.start_soon(_accept_all, broker, serve_socket, sock, tasks)

    def stop_listening(self, broker: Broker) -> None:
        node = broker.node
        self._reserved[node.id] = []
        for _, listening in self._listeners.pop(node.id):
            port = listening.getsockname()[1]
            listening.close()
            reserved = socket.socket(self._family)
            self._reserved[node.id].append(reserved)
            try:
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((self._config.host, port))
            except OSError as error:
                # Another process has taken the port. Starting the broker again then raises OSError.
                logger.warning("port %d of broker %d is lost: %s", port, node.id, error_text(error))

    def close(self) -> None:
        for listening in self._listeners.values():
            for _, sock in listening:
                sock.close()
        for reserved in self._reserved.values():
            for sock in reserved:
                sock.close()
        self._listeners.clear()
        self._reserved.clear()


async def _accept_all(
    broker: Broker, serve: ServeSocket, listening: socket.socket, tasks: TaskGroup
) -> None:
    """Start a task for each connection to a listener, until cancelled."""
    while True:
        await anyio.wait_readable(listening)
        try:
            # Accept all waiting clients. With one client in each iteration of the event loop, the
            # members of a large group would join one by one. Each would start another rebalance.
            for _ in range(_BACKLOG):
                tasks.start_soon(serve, _accept(listening))
        except BlockingIOError:
            continue
        except OSError as error:
            # The client has gone, or there are no file descriptors left. Wait to avoid a busy loop.
            logger.debug("broker %d cannot accept: %s", broker.node.id, error_text(error))
            await anyio.sleep(_ACCEPT_PAUSE)


async def _serve_plain(
    dispatcher: RequestDispatcher, broker: Broker, listener: Listener, sock: socket.socket
) -> None:
    await serve_connection(dispatcher, broker, SocketConnection(sock), listener)


async def _serve_tls(
    dispatcher: RequestDispatcher, broker: Broker, listener: Listener, sock: socket.socket
) -> None:
    try:
        accepted = await accept_tls(broker, sock, listener)
    except Exception:
        # An exception in this task would end the whole cluster.
        logger.exception("broker %d failed in a TLS handshake on %s", broker.node.id, listener.name)
        sock.close()
        return
    if accepted is None:
        logger.info("broker %d: a TLS handshake on %s failed", broker.node.id, listener.name)
        return
    connection, principal = accepted
    await serve_connection(dispatcher, broker, connection, listener, principal)


def _accept(listening: socket.socket) -> socket.socket:
    sock, _ = listening.accept()
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.getpeername()
        return sock
    except OSError:
        sock.close()
        raise
