"""SOCKS5 and HTTP CONNECT proxies on loopback ports, for tests of clients behind them."""

from __future__ import annotations

import base64
import socket
from collections.abc import Mapping
from urllib.parse import quote

from tests.support.counting_proxy import CountingProxy, forward

Login = tuple[str, str]


class TunnelProxy(CountingProxy):
    """A proxy that connects to the target that a client names.

    ``login``: user and password that it requires. ``names``: addresses of names that only the proxy
    knows. ``forbidden``: True to refuse every target by rule.
    """

    scheme = ""

    def __init__(
        self,
        *,
        login: Login | None = None,
        names: Mapping[str, str] | None = None,
        forbidden: bool = False,
    ) -> None:
        super().__init__("127.0.0.1:0")
        self.login = login
        self.names = dict(names or {})
        self.forbidden = forbidden
        self.targets: list[tuple[str, int]] = []
        """Host and port of each request."""
        self.passed = bytearray()
        """Bytes that clients sent to their targets."""

    def url(self, login: Login | None = None, scheme: str = "") -> str:
        """Return the value of ``proxy_url``, by default with the login that it requires."""
        user = login or self.login
        prefix = "" if user is None else f"{quote(user[0], '')}:{quote(user[1], '')}@"
        return f"{scheme or self.scheme}://{prefix}127.0.0.1:{self.port}"

    def negotiate(self, client: socket.socket) -> tuple[str, int] | None:
        """Return the target, or None after a refusal."""
        raise NotImplementedError

    def respond(self, client: socket.socket, connected: bool) -> None:
        """Send the final response."""
        raise NotImplementedError

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connects += 1
            self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        try:
            target = self.negotiate(client)
            if target is None:
                client.close()
                return
            self.targets.append(target)
            host, port = target
            try:
                server = socket.create_connection((self.names.get(host, host), port), timeout=60)
            except OSError:
                self.respond(client, connected=False)
                client.close()
                return
            self._sockets.append(server)
            server.settimeout(None)
            self.respond(client, connected=True)
        except (OSError, EOFError):
            client.close()
            return
        self._start(forward, server, client)
        forward(client, server, self.passed)


class SocksProxy(TunnelProxy):
    """A SOCKS5 proxy (RFC 1928, RFC 1929)."""

    scheme = "socks5h"

    def negotiate(self, client: socket.socket) -> tuple[str, int] | None:
        version, count = _receive(client, 2)
        assert version == 5
        methods = _receive(client, count)
        wanted = 0 if self.login is None else 2
        client.sendall(bytes([5, wanted if wanted in methods else 0xFF]))
        if wanted not in methods:
            return None
        if self.login is not None:
            assert _receive(client, 1) == b"\x01"
            given = tuple(_receive(client, _receive(client, 1)[0]).decode() for _ in range(2))
            client.sendall(bytes([1, given != self.login]))
            if given != self.login:
                return None
        assert _receive(client, 3) == b"\x05\x01\x00"
        kind = _receive(client, 1)[0]
        if kind == 3:
            host = _receive(client, _receive(client, 1)[0]).decode()
        else:
            family, size = {1: (socket.AF_INET, 4), 4: (socket.AF_INET6, 16)}[kind]
            host = socket.inet_ntop(family, _receive(client, size))
        port = int.from_bytes(_receive(client, 2), "big")
        if self.forbidden:
            client.sendall(b"\x05\x02\x00\x01" + bytes(6))
            return None
        return host, port

    def respond(self, client: socket.socket, connected: bool) -> None:
        if connected:
            client.sendall(b"\x05\x00\x00\x03\x09localhost\x00\x00")
        else:
            client.sendall(b"\x05\x05\x00\x01" + bytes(6))


class HttpProxy(TunnelProxy):
    """An HTTP proxy that knows CONNECT alone (RFC 9110)."""

    scheme = "http"

    def negotiate(self, client: socket.socket) -> tuple[str, int] | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _receive(client, 1)
        first, *lines = head.decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
        assert (method, version) == ("CONNECT", "HTTP/1.1")
        fields = (each.partition(": ") for each in lines)
        headers = {name.lower(): value for name, _, value in fields}
        assert headers["host"] == target
        if self.login is not None:
            expected = base64.b64encode(":".join(self.login).encode()).decode()
            if headers.get("proxy-authorization") != f"Basic {expected}":
                client.sendall(
                    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
                    b'Proxy-Authenticate: Basic realm="tests"\r\nContent-Length: 0\r\n\r\n'
                )
                return None
        if self.forbidden:
            client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!\n")
            return None
        host, _, port = target.rpartition(":")
        return host.strip("[]"), int(port)

    def respond(self, client: socket.socket, connected: bool) -> None:
        if connected:
            client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: tests\r\n\r\n")
        else:
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")


def _receive(sock: socket.socket, size: int) -> bytes:
    """Receive exactly ``size`` bytes."""
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
