"""ProxyConnector: TCP connections through a SOCKS5 or HTTP CONNECT proxy.

The result is a socket whose bytes go to the broker. TLS and login follow on it as without a proxy.
Nothing is received beyond the response of the proxy.
"""

from __future__ import annotations

import base64
import re
import socket
from typing import TYPE_CHECKING, NoReturn

import anyio

from kohort.config import ClientConfig, ProxyConfig, without_frames
from kohort.errors import (
    KafkaError,
    ProxyAuthenticationFailedError,
    ProxyConnectionError,
    ProxyRefusedError,
)
from kohort.transport._printable import address, reason
from kohort.transport.network._bytes import NETWORK_ERRORS
from kohort.transport.network._tcp import TcpConnection, TcpConnector
from kohort.types import escaped

if TYPE_CHECKING:
    from kohort.config import ProxyUrl

MAX_HEAD = 16 << 10
"""Most bytes of all heads of HTTP responses."""
SHOWN = 80
"""Most characters of a text of the proxy in an error."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n")
_CHALLENGE = re.compile(rb"^proxy-authenticate:[ \t]*([!-~]+)", re.I | re.M)

_NO_LOGIN, _PASSWORD, _NONE_ACCEPTED = 0, 2, 0xFF
"""Methods of SOCKS5 logins (RFC 1928)."""
_IPV4, _DOMAIN, _IPV6 = 1, 3, 4
"""Types of SOCKS5 addresses."""
_NOT_ALLOWED = {
    2: "its rules forbid it. Have them allow the address",
    7: "it does not know the command CONNECT. Use another proxy",
    8: "it does not know this type of address. Use socks5:// in place of socks5h://, or vice versa",
}
_NOT_CONNECTED = {
    1: "general failure",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
}
"""Codes of SOCKS5 responses, which refuse for good or may succeed later."""


class ProxyConnector(TcpConnector):
    """A :data:`~kohort.transport.Connect` through a proxy."""

    def __init__(self, config: ClientConfig, proxy: ProxyConfig) -> None:
        super().__init__(config)
        assert proxy.url is not None
        self._url = proxy.url
        self._option = proxy.option_name
        self._proxies = TcpConnector(config)
        self.through = f" through the proxy {escaped(str(proxy.url))}"
        """Clause for errors."""

    async def open_socket(self, host: str, port: int) -> socket.socket:
        """Connect to the broker through the proxy. Raises ConnectionError and errors of proxies."""
        if self._url.resolves_names:
            return await self._open_tunnel(host, port)
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise OSError(f"{reason(error)}. With socks5h:// the proxy resolves names") from error
        failures: list[str] = []
        for index, (_, sockaddr) in enumerate(addresses):
            left = anyio.current_effective_deadline() - anyio.current_time()
            share = min(self._setup_timeout, left / (len(addresses) - index))
            try:
                with anyio.fail_after(share):
                    return await self._open_tunnel(sockaddr[0], port)
            except _TargetError as error:
                why = reason(error)
            except TimeoutError:
                why = f"no connection{self.through} within {share:.3g} s"
            failures.append(why if sockaddr[0] == host else f"{address(sockaddr[0], port)}: {why}")
        raise ConnectionError(", ".join(failures) or f"{escaped(host)} has no address")

    async def _open_tunnel(self, host: str, port: int) -> socket.socket:
        try:
            sock = await self._proxies.open_socket(self._url.host, self._url.port)
        except OSError as error:
            raise ProxyConnectionError(
                f"cannot connect to the proxy {escaped(str(self._url))}: {reason(error)}. Check "
                f"{self._option}, and that the proxy runs"
            ) from error
        link = TcpConnection(sock)
        tunnel = _Tunnel(link, self._url, self._option, host, port)
        try:
            await (tunnel.by_socks() if self._url.is_socks else tunnel.by_http())
        except KafkaError:
            await link.aclose()
            raise
        except NETWORK_ERRORS as error:
            await link.aclose()
            # The frames of a failed send have the password of the proxy.
            failure = without_frames(error)
        except BaseException:
            await link.aclose()
            raise
        else:
            return sock
        if isinstance(failure, _TargetError):
            raise failure
        raise ProxyConnectionError(
            f"the proxy {escaped(str(self._url))} closed the connection before it was connected to "
            f"{address(host, port)}: {reason(failure)}. Check the log of the proxy"
        ) from failure


class _TargetError(ConnectionError):
    """Failure to name the broker to the proxy, or of the proxy to connect to it."""


class _Tunnel:
    """The negotiation with a proxy over one connection. Its methods raise NETWORK_ERRORS, too."""

    def __init__(
        self, link: TcpConnection, url: ProxyUrl, option: str, host: str, port: int
    ) -> None:
        self._link = link
        self._url = url
        self._option = option
        self._host = host
        self._port = port
        self._name = f"the proxy {escaped(str(url))}"

    async def _receive(self, size: int) -> bytes:
        """Receive exactly ``size`` bytes."""
        view = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            if not (count := await self._link.recv_into(view[filled:])):
                raise EOFError("end of the stream")
            filled += count
        return bytes(view)

    # -- SOCKS5 (RFC 1928, RFC 1929) ------------------------------------------------------------

    async def by_socks(self) -> None:
        """Log in and connect to the broker by SOCKS5."""
        target = _socks_address(self._host)
        methods = bytes([_NO_LOGIN] if self._url.user is None else [_NO_LOGIN, _PASSWORD])
        await self._link.send([bytes([5, len(methods)]), methods])
        version, method = await self._receive(2)
        self._check_version(version)
        if method == _PASSWORD and self._url.user is not None:
            await self._link.send([_socks_login(self._url)])
            if (await self._receive(2))[1] != 0:
                self._refuse_login()
        elif method == _NONE_ACCEPTED:
            self._refuse_login()
        elif method != _NO_LOGIN:
            raise ProxyConnectionError(
                f"{self._name} chose the login method {method}, which was not offered. Check the "
                "proxy"
            )
        await self._link.send([b"\x05\x01\x00", target, self._port.to_bytes(2, "big")])
        version, code = await self._receive(2)
        self._check_version(version)
        if code in _NOT_ALLOWED:
            self._refuse(_NOT_ALLOWED[code])
        if code:
            self._fail(_NOT_CONNECTED.get(code, f"SOCKS5 error {code}"))
        _, kind = await self._receive(2)
        # The address from which the proxy connects is of no use.
        if kind not in (_IPV4, _DOMAIN, _IPV6):
            raise ProxyConnectionError(
                f"{self._name} responded with an address of unknown type {kind}. Check the proxy"
            )
        size = (await self._receive(1))[0] if kind == _DOMAIN else {_IPV4: 4, _IPV6: 16}[kind]
        await self._receive(size + 2)

    def _check_version(self, version: int) -> None:
        if version != 5:
            raise ProxyConnectionError(
                f"{self._name} does not respond by SOCKS5. Check the port and the scheme of "
                f"{self._option}"
            )

    # -- HTTP CONNECT (RFC 9110, 9.3.6) ---------------------------------------------------------

    async def by_http(self) -> None:
        """Connect to the broker by HTTP CONNECT."""
        target = _authority(self._host, self._port)
        await self._link.send([_http_request(target, self._url)])
        left = MAX_HEAD
        while True:
            head = await self._receive_head(left)
            left -= len(head)
            status = _STATUS.match(head)
            if status is None:
                self._refuse_protocol()
            code, phrase = int(status[1]), escaped((status[2] or b"").decode("latin-1")[:SHOWN])
            if code // 100 != 1:  # an interim response comes before the final one
                break
        response = f"it responded with {code} {phrase}".rstrip()
        if code == 407:
            offered = [each.decode("latin-1").lower() for each in _CHALLENGE.findall(head)]
            self._refuse_login([] if "basic" in offered else offered)
        if code // 100 == 5 or code in (408, 429):
            self._fail(response)
        if code // 100 != 2:
            self._refuse(f"{response}. Have its rules allow the address")

    async def _receive_head(self, limit: int) -> bytes:
        """Receive a head up to its empty line, byte by byte, because the broker's data follows."""
        head = bytearray()
        while not head.endswith((b"\r\n\r\n", b"\n\n")):
            if len(head) >= limit:
                raise ProxyConnectionError(
                    f"{self._name} responded with more than {MAX_HEAD} bytes of HTTP headers. "
                    "Check the proxy"
                )
            head += await self._receive(1)
            if not b"HTTP/1.".startswith(bytes(head[:7])):
                self._refuse_protocol()
        return bytes(head)

    def _refuse_protocol(self) -> NoReturn:
        raise ProxyConnectionError(
            f"{self._name} does not respond by HTTP. Check the port and the scheme of "
            f"{self._option}"
        )

    # -- failures -------------------------------------------------------------------------------

    def _refuse_login(self, offered: list[str] | None = None) -> NoReturn:
        if offered:
            names = escaped(", ".join(dict.fromkeys(offered))[:SHOWN])
            text = f"accepts only the login {names}, and kohort knows Basic. Enable Basic there"
        elif self._url.user is None:
            text = f"wants a login. Put user:password@ before the host in {self._option}"
        else:
            text = f"refused the login. Check user and password in {self._option}"
        raise ProxyAuthenticationFailedError(f"{self._name} {text}")

    def _refuse(self, why: str) -> NoReturn:
        peer = address(self._host, self._port)
        raise ProxyRefusedError(f"{self._name} refused to connect to {peer}: {why}")

    def _fail(self, why: str) -> NoReturn:
        raise _TargetError(f"{self._name} did not connect: {why}")


def _packed(host: str) -> tuple[int, bytes] | None:
    """Return the SOCKS5 type and the bytes of an IP address, or None for a name."""
    for family, kind in ((socket.AF_INET, _IPV4), (socket.AF_INET6, _IPV6)):
        try:
            return kind, socket.inet_pton(family, host)
        except (OSError, ValueError):
            pass
    return None


def _checked_name(host: str) -> str:
    """Return a host name in ASCII.

    The name may come from a broker, so it must not contain anything else. Raises _TargetError.
    """
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise _TargetError(f"not a host name for a proxy: {escaped(host)}")
    return name


def _socks_address(host: str) -> bytes:
    """Return a host as SOCKS5 sends it: type, length of a name, bytes."""
    if (packed := _packed(host)) is not None:
        return bytes([packed[0]]) + packed[1]
    name = _checked_name(host).encode("ascii")
    return bytes([_DOMAIN, len(name)]) + name


def _authority(host: str, port: int) -> str:
    packed = _packed(host)
    if packed is None:
        return f"{_checked_name(host)}:{port}"
    return f"[{host}]:{port}" if packed[0] == _IPV6 else f"{host}:{port}"


def _socks_login(url: ProxyUrl) -> bytes:
    assert url.user is not None and url.password is not None
    parts = [b"\x01"]
    for each in (url.user, url.password):
        parts += [bytes([len(each.reveal_bytes())]), each.reveal_bytes()]
    return b"".join(parts)


def _http_request(target: str, url: ProxyUrl) -> bytes:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if url.user is not None and url.password is not None:
        both = url.user.reveal_bytes() + b":" + url.password.reveal_bytes()
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(both).decode('ascii')}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
