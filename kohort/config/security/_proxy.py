"""Proxies for the connections to brokers. No error and no ``repr`` shows their user or password."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from kohort.config.options._option import SecuritySection, option, section
from kohort.config.options._secret import Secret
from kohort.config.options._url import Address, split_url

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_PORTS: Final = {"socks5": 1080, "socks5h": 1080, "http": 80}
_SOCKS_LENGTH_MAX: Final = 255
"""Most bytes of a user and of a password (RFC 1929)."""


class ProxyUrl:
    """The address of a proxy. ``str()`` and ``repr()`` leave out its user and password.

    The credentials are Secrets, so an address that has them is neither pickled nor copied.
    """

    __slots__ = ("host", "password", "port", "scheme", "user")

    def __init__(
        self, scheme: str, host: str, port: int, user: Secret | None, password: Secret | None
    ) -> None:
        self.scheme: Final = scheme
        self.host: Final = host
        self.port: Final = port
        self.user: Final = user
        self.password: Final = password

    @property
    def is_socks(self) -> bool:
        """True for SOCKS5, False for HTTP CONNECT."""
        return self.scheme != "http"

    @property
    def resolves_names(self) -> bool:
        """True if the proxy resolves the names of brokers."""
        return self.scheme != "socks5"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProxyUrl) and (
            str(self) == str(other) and self.user == other.user and self.password == other.password
        )

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        for secret in (self.user, self.password):
            if secret is not None:
                secret.__reduce_ex__(protocol)  # raises
        return ProxyUrl, (self.scheme, self.host, self.port, None, None)


class ProxyAddress(Address[ProxyUrl]):
    """The address of a proxy with one of some schemes, or None."""

    form = ProxyUrl

    def __init__(self, *schemes: str) -> None:
        self.schemes = schemes
        self.expected = f"a URL with {' or '.join(f'{each}://' for each in schemes)}, or None"

    def read(self, secret: Secret) -> ProxyUrl | str:
        found = split_url(secret)
        return found if isinstance(found, str) else _checked(*found, self.schemes)


def _checked(parts: SplitResult, port: int | None, schemes: tuple[str, ...]) -> ProxyUrl | str:
    if parts.scheme == "https":
        return "kohort makes no TLS to the proxy itself; the TLS to brokers works through http://"
    if parts.scheme not in schemes or not parts.netloc:
        return "another scheme, or none"
    if not parts.hostname or port == 0 or "\\" in parts.netloc:
        return "not a URL with a valid host and port"
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return "a URL with a path, a query or a fragment"
    user, password = _credentials(parts)
    if fault := _credentials_fault(user, password, is_socks=parts.scheme != "http"):
        return fault
    return ProxyUrl(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], user, password)


def _credentials(parts: SplitResult) -> tuple[Secret | None, Secret | None]:
    """Return user and password without percent-encoding, or None for both."""
    from urllib.parse import unquote_to_bytes

    if parts.username is None or (not parts.username and not parts.password):
        return None, None
    return Secret(unquote_to_bytes(parts.username)), Secret(unquote_to_bytes(parts.password or ""))


def _credentials_fault(user: Secret | None, password: Secret | None, *, is_socks: bool) -> str:
    """Return a sentence about credentials that the proxy's protocol cannot send, or no text."""
    if user is None or password is None:
        return ""
    sizes = [len(each.reveal_bytes()) for each in (user, password)]
    if is_socks:
        fits = all(0 < size <= _SOCKS_LENGTH_MAX for size in sizes)
        return "" if fits else "SOCKS5 needs a user and a password of 1 to 255 bytes each"
    both = user.reveal_bytes() + password.reveal_bytes()
    if not user or b":" in user.reveal_bytes() or any(byte < 32 or byte == 127 for byte in both):
        return "HTTP needs a user without a colon, and no control characters"
    return ""


@section
class ProxyConfig(SecuritySection):
    """Options of a proxy between this client and the brokers."""

    proxy_url: ProxyUrl | None = field(
        default=None,
        metadata=option(
            ProxyAddress(*_PORTS),
            "Proxy for all connections to brokers: `socks5://`, `socks5h://` or `http://`, then "
            "`user:password@host:port`. The proxy resolves the names of brokers, except with "
            "`socks5://`.",
        ),
    )
    socks5_proxy: ProxyUrl | None = field(
        default=None,
        metadata=option(
            ProxyAddress("socks5", "socks5h"), "Former name of proxy_url, for SOCKS5 only."
        ),
    )

    @property
    def url(self) -> ProxyUrl | None:
        """The proxy, or None without one."""
        return self.proxy_url or self.socks5_proxy

    @property
    def option_name(self) -> str:
        """The option that names the proxy."""
        return "socks5_proxy" if self.socks5_proxy is not None else "proxy_url"
