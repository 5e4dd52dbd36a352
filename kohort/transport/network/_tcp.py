"""TCP connections over non-blocking sockets, which receive straight into the caller's buffer.

anyio's socket streams return at most 64 KiB at a time, each as a new bytes object. That costs
about half of the throughput.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from kohort.config import ClientConfig
from kohort.protocol import Buffer
from kohort.transport._printable import address, reason
from kohort.transport.network._bytes import ByteConnection, Progress, ReceiveFrame
from kohort.transport.network._loop import CallbackLoop, frame_selector_of, suspended
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort.transport.network._attempts import Attempt
    from kohort.transport.network._poller import FrameReceiver

LOW_WATER = 2 << 20
"""Most bytes to wait for at a time while a larger response is received."""
HAS_LOW_WATER = sys.platform == "linux"  # elsewhere a full buffer below the mark may not wake
IOV_MAX = 512
"""Buffers in one call. Current systems allow at least 1024."""
ADDRESS_STAGGER = 0.25
"""Seconds until the next address of a host is tried beside a silent one (RFC 8305)."""
MOST_ADDRESSES = 8
"""Addresses of a host that are tried at a time."""
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds and number of keep-alive probes. macOS calls the first option TCP_KEEPALIVE.

They keep an idle connection known to load balancers. Azure forgets one after 4 minutes.
"""
LONGEST_UNACKNOWLEDGED_MS = 20_000
"""Longest time that sent bytes may stay without an acknowledgement by the broker's host."""
_CONNECTING = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)


class TcpConnection:
    """A :class:`~kohort.transport.ByteConnection` that owns a connected, non-blocking socket."""

    reads_in_callbacks = True
    """The connection has read_with(), stop_reading() and send_now()."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._closed = False
        self._low = 1
        self._received_expected = False
        """True if the expected bytes have come, so that another receive is hardly useful yet.

        A receive releases the interpreter's lock, which another thread of a busy program takes.
        """
        self._loop: CallbackLoop | None = None
        """Event loop that calls the reader of read_with()."""
        self._frames: FrameReceiver | None = None
        """Receiver of whole frames in this event loop, or None where that is not possible."""

    def read_with(self, loop: CallbackLoop, on_readable: Callable[[], None]) -> bool:
        """Have asyncio's event loop call ``on_readable`` whenever the socket is readable.

        From then on a coroutine that ``on_readable`` runs with ``send(None)`` must await
        recv_into(), which suspends instead of waiting. That saves two iterations of the event loop
        and two system calls for each response. Return False if the event loop cannot watch sockets.
        """
        try:
            loop.add_reader(self._socket, on_readable)
        except NotImplementedError:
            return False
        self._loop = loop
        if (selector := frame_selector_of(loop)) is not None:
            self._frames = selector.receiver(self._socket.fileno())
        return True

    def stop_reading(self) -> None:
        """Stop the calls of the reader of read_with()."""
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        if self._loop is not None and not self._closed and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = None

    def expect(self, size: int, /) -> None:
        """Wake the reader when ``size`` bytes have come, and not for a few of them.

        The bytes of a fast peer would come in hundreds of pieces, each with an iteration of the
        event loop. The system also wakes the reader when its buffer is full, or at the end of the
        stream.
        """
        low = max(1, min(size, LOW_WATER))
        if HAS_LOW_WATER and low != self._low and not self._closed:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
            self._low = low
        self._received_expected = size == 1

    def frame_receiver(self) -> ReceiveFrame | None:
        """Return a function that receives a whole frame, or None without the compiled selector."""
        return None if self._frames is None else self._receive_frame

    async def _receive_frame(
        self, view: memoryview, awaited_id: Callable[[], int | None], /
    ) -> tuple[bytes, int, Progress]:
        """Receive the next frame without the interpreter's lock. See ReceiveFrame."""
        self._check_open()
        frames = self._frames
        assert frames is not None
        frames.start(view, awaited_id)
        try:
            while not frames.done:
                await suspended()
                self._check_open()
                frames.advance()
            return (*frames.result(), frames.progress())
        finally:
            frames.stop()
            self._received_expected = False

    def progress(self) -> Progress:
        """Return the progress of a whole frame, or of bytes below the mark of expect()."""
        if self._frames is not None and not self._frames.done:
            return self._frames.progress()
        return Progress() if self._low == 1 or self._closed else Progress(unread(self._socket))

    async def recv_into(self, view: memoryview, /) -> int:
        if self._received_expected:
            self._check_open()
            await self._wait_readable()
            self._received_expected = False
        while True:
            self._check_open()
            try:
                received = self._socket.recv_into(view)
            except BlockingIOError:
                await self._wait_readable()
            else:
                # The event loop calls again when there is more.
                self._received_expected = self._loop is not None and received < len(view)
                return received

    async def _wait_readable(self) -> None:
        if self._loop is not None:
            await suspended()
        else:
            await anyio.wait_readable(self._socket)

    async def send(self, buffers: Sequence[Buffer], /) -> None:
        left = unsent_after(buffers, 0)
        while left:
            if sent := self.send_now(left):
                left = unsent_after(left, sent)
            else:
                await anyio.wait_writable(self._socket)

    def send_now(self, buffers: Sequence[Buffer], /) -> int:
        """Send without waiting and return the number of bytes. Raises OSError."""
        self._check_open()
        try:
            if self._frames is not None:
                return self._frames.send(buffers)
            if len(buffers) == 1:
                return self._socket.send(buffers[0])
            return self._socket.sendmsg(buffers[:IOV_MAX])
        except BlockingIOError:
            return 0

    async def aclose(self) -> None:
        if not self._closed:
            self.stop_reading()
            self._closed = True
            anyio.notify_closing(self._socket)
            self._socket.close()

    def _check_open(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError


def unread(sock: socket.socket) -> int:
    """Return the number of bytes in the system's buffer. Linux has this number."""
    import fcntl  # few connections are that slow
    import termios

    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def unsent_after(buffers: Sequence[Buffer], size: int) -> list[Buffer]:
    """Return the bytes after the first ``size`` bytes of these buffers."""
    if len(buffers) == 1 and size == len(buffers[0]):
        return []
    for first, buffer in enumerate(buffers):
        view = memoryview(buffer).cast("B")
        if size < len(view):
            return [view[size:], *buffers[first + 1 :]]
        size -= len(view)
    return []


class TcpConnector:
    """The default :data:`~kohort.transport.Connect`, which tries all addresses of a name."""

    through = ""
    """Clause for errors that names the proxy."""

    def __init__(self, config: ClientConfig) -> None:
        self._setup_timeout = config.socket_connection_setup_timeout_ms / 1000
        # The sizes decide the announced TCP window, so they are set before connecting.
        self._options: list[tuple[int, int, int | bytes]] = [
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            *_dead_peer_options(config.request_timeout_ms),
        ]
        if config.receive_buffer_bytes is not None:
            self._options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes))
        if config.send_buffer_bytes is not None:
            self._options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes))
        self._options += config.socket_options
        self._known: dict[tuple[str, int], Sequence[tuple[int, tuple[Any, ...]]]] = {}
        """The latest addresses of each host and port."""

    async def __call__(self, host: str, port: int) -> ByteConnection:
        """Connect as open_socket() does. Raises ConnectionError."""
        return TcpConnection(await self.open_socket(host, port))

    async def open_socket(self, host: str, port: int) -> socket.socket:
        """Connect to the first address that accepts. A silent one does not delay the next.

        Raises a ConnectionError that names every address with its error.
        """
        addresses = await self._resolve(host, port)
        failures: list[str] = []
        waiting = iter(addresses)
        left = anyio.current_effective_deadline() - anyio.current_time()
        rounds = -(-len(addresses) // MOST_ADDRESSES)
        limit = min(self._setup_timeout, left / max(rounds, 1))

        async def attempt(family: int, sockaddr: tuple[Any, ...]) -> socket.socket | None:
            try:
                with anyio.fail_after(limit):
                    return await self._connect(family, sockaddr)
            except TimeoutError as error:
                why = reason(error) if error.errno else f"no connection within {limit:.3g} s"
            except OSError as error:
                why = reason(error)
            prefix = "" if sockaddr[0] == host else f"{address(sockaddr[0], port)}: "
            failures.append(prefix + why)
            return None

        async def next_attempt() -> Attempt[socket.socket] | None:
            found = next(waiting, None)
            return None if found is None else partial(attempt, *found)

        if len(addresses) == 1:
            sock = await attempt(*addresses[0])
        else:
            from kohort.transport.network._attempts import first_success  # few names have several

            sock = await first_success(
                next_attempt,
                socket.socket.close,
                stagger=ADDRESS_STAGGER,
                at_most=MOST_ADDRESSES,
            )
        if sock is None:
            raise ConnectionError(", ".join(failures) or f"{escaped(host)} has no address")
        return sock

    async def _resolve(self, host: str, port: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        """Return the addresses of a host, or the latest ones if no thread can look them up.

        A process that ends refuses threads.
        """
        try:
            found = self._known[host, port] = await _resolve(host, port)
        except RuntimeError:
            if (host, port) not in self._known:
                raise
            return self._known[host, port]
        return found

    async def _connect(self, family: int, sockaddr: tuple[Any, ...]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            for level, option, value in self._options:
                sock.setsockopt(level, option, value)
            code = sock.connect_ex(sockaddr)
            if code in _CONNECTING:
                await anyio.wait_writable(sock)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            if sock.getsockname() == sock.getpeername():
                # A local port without a listener may be the local port of this socket.
                raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except BaseException:
            sock.close()
            raise
        return sock


def _dead_peer_options(request_timeout_ms: int) -> list[tuple[int, int, int]]:
    """Return the options by which the system notices a dead connection, where it has them.

    Without them it retransmits for 15 minutes.
    """
    values = dict(_KEEPALIVE)
    # A request that may take 30 s then has time for a second try.
    values["TCP_USER_TIMEOUT"] = min(LONGEST_UNACKNOWLEDGED_MS, request_timeout_ms * 2 // 3)
    return [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in values.items()
        if hasattr(socket, name) and value
    ]


async def _resolve(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Return (family, socket address) of each address of the host, in the system's order."""
    if not host or not 0 < port < 1 << 16:
        raise OSError(errno.EINVAL, f"not an address: {address(host, port)}")
    kind = socket.SOCK_STREAM
    found: Sequence[tuple[Any, ...]]
    try:
        # An IP address needs neither a thread nor the resolver. Bytes avoid the IDNA codec, whose
        # import takes a millisecond.
        numeric = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(numeric, port, type=kind, flags=socket.AI_NUMERICHOST)
    except (socket.gaierror, UnicodeError):
        try:
            found = await anyio.getaddrinfo(host, port, type=kind)
        except socket.gaierror as error:
            raise OSError(f"cannot resolve {escaped(host)}: {reason(error)}") from error
        except UnicodeError as error:
            raise OSError(f"not a host name: {escaped(host)}") from error
    return [(int(family), sockaddr) for family, _, _, _, sockaddr in dict.fromkeys(found)]
