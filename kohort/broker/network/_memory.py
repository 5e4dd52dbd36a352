"""The network in memory: streams of bytes between tasks of one event loop, and errors of TLS."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Sequence

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from kohort.broker.cluster._broker import Broker
from kohort.broker.configs._cluster_config import ClusterConfig
from kohort.broker.network._server import serve_connection
from kohort.broker.requests._dispatch import RequestDispatcher
from kohort.broker.security import ANONYMOUS, Listener
from kohort.protocol import Buffer

_REFUSED = {
    "expired": (10, "certificate has expired"),
    "not_yet_valid": (9, "certificate is not yet valid"),
    "wrong_host": (62, "Hostname mismatch, certificate is not valid for 'kohort.invalid'."),
    "revoked": (23, "certificate revoked"),
    "unknown_ca": (20, "unable to get local issuer certificate"),
}
"""OpenSSL's verify code and message for each kind of certificate that clients refuse."""


async def check_tls(broker: Broker, listener: Listener, certificate: str) -> str:
    """Return the principal of the client; ssl.SSLError if a fault or the listener refuses it."""
    if not listener.uses_tls:
        return ANONYMOUS
    security = broker.cluster.security
    fault = security.tls_fault(broker.node.id)
    if fault is not None and fault.kind == "slow":
        with anyio.move_on_after(fault.seconds):
            await fault.stopped.wait()
    elif fault is not None and fault.kind == "plain":
        raise _ssl_error("WRONG_VERSION_NUMBER", "wrong version number")
    elif fault is not None and fault.kind in _REFUSED:
        raise _verification_error(*_REFUSED[fault.kind])
    if listener.client_auth == "required" and not certificate:
        raise _ssl_error("TLSV13_ALERT_CERTIFICATE_REQUIRED", "tlsv13 alert certificate required")
    if listener.client_auth == "none" or not certificate:
        return ANONYMOUS
    subject = (
        (("organizationName", "kohort"),),
        (("organizationalUnitName", "tests"),),
        (("commonName", certificate),),
    )
    principal = security.certificate_principal(listener, subject)
    if principal is None:
        raise ConnectionResetError("no rule maps the principal of the certificate")
    return principal


def _verification_error(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(
        1, f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {message}"
    )
    error.library, error.reason = "SSL", "CERTIFICATE_VERIFY_FAILED"
    error.verify_code, error.verify_message = code, message
    return error


def _ssl_error(reason: str, text: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {text}")
    error.library, error.reason = "SSL", reason
    return error


HOST = "kohort.invalid"
"""Host name that no resolver knows, so clients without the connect hook reach nothing."""
FIRST_PORT = 9092
_BUFFER_LIMIT = 1 << 20
"""Bytes that a stream buffers before its writer has to wait."""


class Stream:
    """Buffered bytes of one direction of a connection."""

    def __init__(self) -> None:
        self._buffered: deque[memoryview] = deque()
        self._size = 0
        self._change: anyio.Event | None = None
        self.is_writer_closed = False
        """True after the writer has closed."""
        self.is_reader_closed = False
        """True after the reader has closed."""

    def changed(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.set()

    async def _next_change(self) -> None:
        if self._change is None:
            self._change = anyio.Event()
        await self._change.wait()

    async def write(self, data: Buffer) -> None:
        while (
            self._size >= _BUFFER_LIMIT and not self.is_reader_closed and not self.is_writer_closed
        ):
            await self._next_change()
        if self.is_writer_closed:
            raise anyio.ClosedResourceError
        if self.is_reader_closed:
            raise BrokenPipeError("the other end is closed")
        copy = memoryview(data if isinstance(data, bytes) else bytes(data))
        if copy:
            self._buffered.append(copy)
            self._size += len(copy)
            self.changed()

    async def read_into(self, view: memoryview) -> int:
        while not self._buffered:
            if self.is_reader_closed:
                raise anyio.ClosedResourceError
            if self.is_writer_closed:
                return 0
            await self._next_change()
        count = 0
        while self._buffered and count < len(view):
            first = self._buffered.popleft()
            taken = min(len(first), len(view) - count)
            view[count : count + taken] = first[:taken]
            count += taken
            if taken < len(first):
                self._buffered.appendleft(first[taken:])
        self._size -= count
        self.changed()
        return count


class MemoryConnection:
    """One end of a connection, with the methods that kohort's client expects of it."""

    is_encrypted = True
    """The network plays the TLS of its listeners, so the client adds none."""

    def __init__(self, incoming: Stream, outgoing: Stream) -> None:
        self.peer_host = "127.0.0.1"
        self.principal = ANONYMOUS
        self._incoming = incoming
        self._outgoing = outgoing

    async def recv_into(self, view: memoryview) -> int:
        """Receive bytes and return their number, 0 at the end."""
        return await self._incoming.read_into(view)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        """Send all buffers; wait while the other end has too many unread bytes."""
        await self._outgoing.write(b"".join(buffers))

    async def aclose(self) -> None:
        """Close both directions; tasks that wait on the connection get an error."""
        self._outgoing.is_writer_closed = self._incoming.is_reader_closed = True
        self._outgoing.changed()
        self._incoming.changed()


class MemoryNetwork:
    """Network of brokers at :data:`HOST`, where each listener has a port that exists only here."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._listening: dict[int, tuple[Broker, Listener]] = {}
        self._serving: dict[int, tuple[RequestDispatcher, TaskGroup]] = {}
        self._unserved: dict[int, list[MemoryConnection]] = {}

    async def connect(self, host: str, port: int, certificate: str = "") -> MemoryConnection:
        """Connect to the listener at the port; ConnectionRefusedError if there is none.

        ``certificate``: the CN of the client's certificate, for listeners with TLS.
        """
        await anyio.lowlevel.checkpoint()
        broker, listener = self._listener_at(host, port)
        principal = await check_tls(broker, listener, certificate)
        if not broker.is_alive:
            raise ConnectionResetError("the broker died")
        to_server, to_client = Stream(), Stream()
        served = MemoryConnection(to_server, to_client)
        served.principal = principal
        if port not in self._serving:
            self._unserved.setdefault(port, []).append(served)
        else:
            dispatcher, tasks = self._serving[port]
            tasks.start_soon(serve_connection, dispatcher, broker, served, listener, principal)
        return MemoryConnection(to_client, to_server)

    def _listener_at(self, host: str, port: int) -> tuple[Broker, Listener]:
        found = self._listening.get(port)
        if host != self._config.host or found is None or not found[0].is_alive:
            raise ConnectionRefusedError(f"no broker listens on {host}:{port}")
        return found

    def listen(self, broker: Broker) -> None:
        node = broker.node
        listeners = self._config.listeners
        for number, listener in enumerate(listeners):
            # The ports of the first listener come first, one for each broker.
            index = self._config.index_of(node.id) + number * self._config.brokers
            port = node.ports[listener.name] or FIRST_PORT + index
            node.ports[listener.name] = port
            self._listening[port] = broker, listener
            self._serving.pop(port, None)

    async def serve(self, broker: Broker, dispatcher: RequestDispatcher, tasks: TaskGroup) -> None:
        for listener in self._config.listeners:
            port = broker.node.ports[listener.name]
            self._serving[port] = dispatcher, tasks
            for unserved in self._unserved.pop(port, ()):
                principal = unserved.principal
                tasks.start_soon(
                    serve_connection, dispatcher, broker, unserved, listener, principal
                )
        await anyio.sleep_forever()

    def stop_listening(self, broker: Broker) -> None:
        for port in broker.node.ports.values():
            if self._listening.get(port, (None, None))[0] is broker:
                del self._listening[port]
                self._serving.pop(port, None)

    def close(self) -> None:
        self._listening.clear()
        self._serving.clear()
