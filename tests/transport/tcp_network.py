"""A network as ``peer.Network``, whose connections are sockets on the loopback interface."""

from __future__ import annotations

import socket
import struct

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kohort.transport import ByteConnection, TcpConnection
from tests.transport.peer import Network, Peer

_ABORT = struct.pack("ii", 1, 0)


class TcpPeer(Peer):
    """The broker's end of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(TcpConnection(sock))  # type: ignore[arg-type]
        self._socket = sock

    def reset(self) -> None:
        """Reset the connection, as a killed process does."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        anyio.notify_closing(self._socket)
        self._socket.close()


class TcpNetwork(Network):
    """A network of sockets, which the client reads as it reads a real broker's."""

    def __init__(self, tasks: TaskGroup) -> None:
        super().__init__(tasks)
        self.sockets: list[socket.socket] = []

    async def connect(self, host: str, port: int) -> ByteConnection:
        self.attempts.append((anyio.current_time(), host, port))
        await anyio.lowlevel.checkpoint()
        serve = self.listeners.get((host, port))
        if serve is None:
            raise ConnectionRefusedError(111, "Connection refused")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        for sock in (ours, theirs):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sockets.append(ours)
        self._tasks.start_soon(self._serve, serve, TcpPeer(theirs))
        return TcpConnection(ours)

    @property
    def open_ends(self) -> int:
        """Number of connections that the client has not closed."""
        return sum(sock.fileno() >= 0 for sock in self.sockets)
