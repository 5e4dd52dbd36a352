"""The HTTP server of the probes, in a daemon thread."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Self

from kohort.health._answers import Answer, AnyConsumer
from kohort.health._questions import Questions
from kohort.logs import get_logger

logger = get_logger("kohort.health")

REQUEST_SECONDS = 10.0
"""Longest wait for the request of a client that has connected."""


def serve(consumer: AnyConsumer, host: str = "0.0.0.0", port: int = 8081) -> HealthServer:
    """Start a server of ``/live``, ``/ready`` and ``/metrics`` for a consumer, in a thread.

    ``with serve(consumer):`` stands around the block of the program that polls, also in a
    coroutine. The consumer may start later, and brokers may be away. The answers are those of
    :func:`app`. ``host`` is all addresses of IPv4 by default, because platforms call from outside.
    ``"::"`` is all addresses. Port 0 chooses a free port. Raises OSError if the port is in use.

    An AsyncKafkaConsumer whose event loop is blocked is not ready after half a second, and not live
    after ``max_poll_interval_ms``.
    """
    return HealthServer(consumer, host, port)


class HealthServer:
    """The server of :func:`serve`, until :meth:`close` or the end of its ``with`` block."""

    def __init__(self, consumer: AnyConsumer, host: str, port: int) -> None:
        self._server = _Server(host, port, Questions(consumer).answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="kohort-health", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        port: int = self._server.server_address[1]
        return port

    def close(self) -> None:
        """Stop the server, within half a second. Calling it again has no effect."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Server(socketserver.ThreadingTCPServer):
    """A server that looks up no names, in contrast to that of ``http.server``."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, answer: Callable[[str], Answer]) -> None:
        self.answer = answer
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and socket.has_dualstack_ipv6():
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "kohort"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        found = self.server.answer(self.path.partition("?")[0])
        self.send_response(found.status)
        for name, value in found.headers:
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(found.body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
