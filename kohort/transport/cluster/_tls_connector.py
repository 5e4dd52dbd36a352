"""TlsConnector: TLS connections, and the diagnosis of failed handshakes."""

from __future__ import annotations

import functools
import socket
import ssl
from contextlib import suppress

import anyio
import anyio.to_thread

from kohort.config import ClientConfig
from kohort.errors import (
    InvalidOptionError,
    KafkaConnectionError,
    KafkaError,
    WrongListenerError,
)
from kohort.security import (
    NAME_MISMATCHES,
    Certificate,
    TlsAttempt,
    TlsContexts,
    describe,
    explain_refusal,
    explain_tls,
    read_der,
)
from kohort.transport._printable import address
from kohort.transport.cluster._probe import serves_plaintext
from kohort.transport.connection._handshake import checked
from kohort.transport.network._bytes import NETWORK_ERRORS, ByteConnection, Connect
from kohort.transport.network._tcp import TcpConnector
from kohort.transport.network._tls import TlsConnection
from kohort.transport.network._tls_stream import TlsStream

DIAGNOSIS_SECONDS = 2.0
"""Longest time of a second connection that shows why the first one failed, in seconds."""


class TlsConnector:
    """A :data:`~kohort.transport.Connect` for TLS. The connection does the handshake later."""

    def __init__(
        self, config: ClientConfig, contexts: TlsContexts, connect: Connect | None = None
    ) -> None:
        """Create a connector of TLS over TCP, or over the connections of ``connect``.

        Raises InvalidOptionError for a context that can check certificates only on sockets.
        """
        self.connect: Connect = connect or TcpConnector(config)
        self.through = getattr(self.connect, "through", "")
        self.contexts = contexts
        self.found_encrypted = False
        """True if the latest connection of a hook was encrypted already."""
        if self.has_hook and _needs_socket(contexts.current()):
            raise InvalidOptionError(
                "ssl_context has its own wrap_socket(), but no wrap_bio(), which TLS over the "
                "connections of connect uses. Give a context that has both"
            )
        self._certificates: dict[tuple[str, int, int], Certificate | None] = {}
        """Refused certificates. An address is queried once for each verify code."""

    async def __call__(self, host: str, port: int) -> ByteConnection:
        """Connect as a TcpConnector or the hook does, and raise the same errors.

        A connection of a hook that is encrypted already is returned as it is.
        """
        server = AddressedServer(self, host, port)
        if isinstance(self.connect, TcpConnector):
            return TlsConnection(await self.connect.open_socket(host, port), server)
        link = checked(await self.connect(host, port))
        self.found_encrypted = getattr(link, "is_encrypted", False) is True
        return link if self.found_encrypted else server.over(link)

    @property
    def has_hook(self) -> bool:
        """True if the connections are those of the option ``connect``."""
        return not isinstance(self.connect, TcpConnector)

    async def certificate_of(self, host: str, port: int, code: int) -> Certificate | None:
        """Return the certificate that failed with a verify code, or None on failure."""
        key = host, port, code
        if key not in self._certificates:
            if len(self._certificates) >= 1000:
                self._certificates.clear()
            self._certificates[key] = await self._look_up(host, port, code in NAME_MISMATCHES)
        return self._certificates[key]

    def forget(self, host: str, port: int) -> None:
        """Forget the certificates of an address, so that the next refusal reads a new one."""
        if self._certificates:
            for key in [key for key in self._certificates if key[:2] == (host, port)]:
                del self._certificates[key]

    async def _look_up(self, host: str, port: int, verify: bool) -> Certificate | None:
        with anyio.move_on_after(DIAGNOSIS_SECONDS):
            try:
                context = self.contexts.for_diagnosis(verify=verify)
                link = await self.connect(host, port)
            except (KafkaError, *NETWORK_ERRORS):
                return None
            stream = AddressedServer(self, host, port).over(link, context)
            try:
                await stream.shake_hands([])
                der = stream.certificate
                return None if der is None else read_der(der)
            except (OSError, ValueError):
                return None
            finally:
                with anyio.CancelScope(shield=True), suppress(*NETWORK_ERRORS):
                    await stream.aclose()
        return None


class AddressedServer:
    """The server at an address, as in :class:`~kohort.transport.network._tls.TlsServer`."""

    def __init__(self, connector: TlsConnector, host: str, port: int) -> None:
        self.peer = address(host, port)
        self._connector = connector
        self._host = host
        self._port = port

    async def wrap(self, sock: socket.socket, timeout: float) -> ssl.SSLSocket:
        context = self._connector.contexts.current()
        name = server_name(self._host)
        if not _has_own(context, "wrap_socket"):
            return context.wrap_socket(
                sock,
                server_hostname=name,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
        # An example is truststore's, which checks the certificate in wrap_socket() after the
        # handshake, and not at all without one.
        given_up: list[bool] = []
        try:
            return await anyio.to_thread.run_sync(
                functools.partial(_wrap_blocking, context, sock, name, timeout, given_up),
                abandon_on_cancel=True,
            )
        except BaseException:
            given_up.append(True)
            raise

    def over(self, link: ByteConnection, context: ssl.SSLContext | None = None) -> TlsStream:
        """Return TLS over a connection, by default with the context for data."""
        chosen = self._connector.contexts.current() if context is None else context
        name = server_name(self._host)
        wrap = functools.partial(chosen.wrap_bio, server_hostname=name)
        return TlsStream(link, wrap, self)

    def _attempt(self) -> TlsAttempt:
        contexts = self._connector.contexts
        return TlsAttempt(self.peer, self._host, contexts.trust, contexts.identity)

    async def explain(self, error: OSError | ValueError, first_bytes: bytes) -> Exception:
        if isinstance(error, ssl.SSLCertVerificationError):
            code = error.verify_code
            certificate = await self._connector.certificate_of(self._host, self._port, code)
            return explain_tls(error, self._attempt(), certificate=certificate)
        ended = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError)
        if ended and not first_bytes:
            return await self._explain_silence()
        if ended or not isinstance(error, ssl.SSLError | ValueError):
            return KafkaConnectionError(f"{self.peer} closed in the TLS handshake")
        return explain_tls(error, self._attempt(), first_bytes=first_bytes)

    async def _explain_silence(self) -> Exception:
        """Return the error for a closed handshake, after a probe of the listener without TLS."""
        with anyio.move_on_after(DIAGNOSIS_SECONDS):
            if await serves_plaintext(self._connector.connect, self._host, self._port):
                hook = (
                    ". If the function of connect does the TLS itself, set connect_encrypts=True"
                    if self._connector.has_hook
                    else ""
                )
                return WrongListenerError(
                    f"{self.peer} is a listener without TLS: set security_protocol to PLAINTEXT "
                    f"or SASL_PLAINTEXT, or use the port of a TLS listener{hook}"
                )
        return KafkaConnectionError(
            f"{self.peer} closed in the TLS handshake, before it sent anything: is it a TLS "
            "listener of a Kafka broker?"
        )

    def explain_later(self, error: OSError, *, in_handshake: bool) -> Exception:
        if not isinstance(error, ssl.SSLError):
            return error
        self._connector.forget(self._host, self._port)
        # In TLS 1.3 the broker refuses a client certificate after the handshake.
        if refused := explain_refusal(error, self._attempt()):
            return refused
        if in_handshake and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return explain_tls(error, self._attempt(), first_bytes=b"\x16")
        return KafkaConnectionError(f"{self.peer}: TLS failed: {describe(error)}")


def _has_own(context: ssl.SSLContext, method: str) -> bool:
    return getattr(type(context), method) is not getattr(ssl.SSLContext, method)


def _needs_socket(context: ssl.SSLContext) -> bool:
    """Return True if the context may check certificates in its wrap_socket() alone."""
    return _has_own(context, "wrap_socket") and not _has_own(context, "wrap_bio")


def server_name(host: str) -> str:
    """Return the name for SNI and the certificate, without a final dot or an IPv6 scope."""
    name = host[:-1] if host.endswith(".") else host
    return name.partition("%")[0] if ":" in name else name


def _wrap_blocking(
    context: ssl.SSLContext,
    sock: socket.socket,
    name: str,
    timeout: float,
    given_up: list[bool],
) -> ssl.SSLSocket:
    """Do the whole handshake in a worker thread. Close the result if ``given_up``."""
    sock.settimeout(timeout)
    wrapped = context.wrap_socket(sock, server_hostname=name, suppress_ragged_eofs=False)
    if given_up:
        wrapped.close()
    else:
        wrapped.setblocking(False)
    return wrapped
