"""TLS server in a thread. The test chooses what it does with each connection."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self

from kohort.protocol import FrameReader, decode_request, encode_response, messages
from tests.support.certificates import Certificates

Handle = Callable[[Any], None]
"""Function that gets the socket after the TLS handshake. Its return closes the connection."""


def server_context(
    certificates: Certificates, name: str = "server", *, client_auth: bool = False
) -> ssl.SSLContext:
    """Return a context that presents the certificate of that name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path(f"{name}.pem"), certificates.path(f"{name}.key"))
    if client_auth:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.ca)
    return context


class TlsServer:
    """Server on a loopback port. ``connects`` counts connections, ``failures`` lists errors.

    Without a context, ``handle`` gets the plain socket.
    """

    def __init__(self, context: ssl.SSLContext | None, handle: Handle) -> None:
        self.context = context
        self.handle = handle
        self.connects = 0
        self.names: list[str | None] = []
        """Names that clients sent by SNI, one for each handshake."""
        self.failures: list[Exception] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._sockets: list[Any] = []
        self._closed = False
        if context is not None:
            context.sni_callback = lambda _, name, __: self.names.append(name)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connects += 1
            sock.settimeout(10)
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: Any) -> None:
        try:
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
                self._sockets.append(sock)
            self.handle(sock)
        except (OSError, ValueError) as error:
            self.failures.append(error)
        finally:
            sock.close()


def broker(address: Callable[[], tuple[str, int]]) -> Handle:
    """Return a handler that responds to ApiVersions and Metadata as the one broker of a cluster."""

    def handle(sock: Any) -> None:
        reader = FrameReader(1 << 20)
        while data := sock.recv(1 << 16):
            for frame in reader.feed(data):
                header, request = decode_request(frame)
                host, port = address()
                answer = _answer(request, host, port)
                parts = encode_response(answer, header.request_api_version, header.correlation_id)
                sock.sendall(b"".join(parts))

    return handle


def _answer(request: Any, host: str, port: int) -> Any:
    if isinstance(request, messages.ApiVersionsRequest):
        return messages.ApiVersionsResponse(
            api_keys=[
                messages.ApiVersionsResponse.ApiVersion(
                    api_key=kind.api_key,
                    min_version=kind.versions.first,
                    max_version=kind.versions.last,
                )
                for kind in (
                    messages.ApiVersionsRequest,
                    messages.MetadataRequest,
                    messages.FindCoordinatorRequest,
                )
            ]
        )
    if isinstance(request, messages.MetadataRequest):
        return messages.MetadataResponse(
            cluster_id="c",
            controller_id=1,
            brokers=[
                messages.MetadataResponse.MetadataResponseBroker(
                    node_id=1, host=host, port=port, rack=None
                )
            ],
        )
    raise ValueError(f"no answer to {type(request).__name__}")
