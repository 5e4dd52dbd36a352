"""URLs as values of options. Neither an error nor a ``repr`` shows a query or a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kohort.config.options._option_types import OptionType, ValueFault
from kohort.config.options._secret import Concealed, Secret, conceal

if TYPE_CHECKING:
    from urllib.parse import SplitResult

T = TypeVar("T")
_PORTS: Final = {"https": 443, "http": 80}
_LENGTH_MAX = 2_048


class Url:
    """An ``https`` or ``http`` address. ``str()`` and ``repr()`` leave out its query.

    The query is a Secret, so an address that has one is neither pickled nor copied.
    """

    __slots__ = ("_query", "host", "path", "port", "scheme")

    def __init__(self, scheme: str, host: str, port: int, path: str, query: str) -> None:
        self.scheme: Final = scheme
        self.host: Final = host
        self.port: Final = port
        self.path: Final = path
        self._query: Final = Secret(query) if query else None

    @property
    def target(self) -> str:
        """The path with the query, which is the target of an HTTP request."""
        return f"{self.path}?{self._query.reveal()}" if self._query else self.path

    @property
    def is_loopback(self) -> bool:
        """True if the host is this machine by its name or address."""
        return is_loopback(self.host)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self._query is not None:
            self._query.__reduce_ex__(protocol)  # raises
        return Url, (self.scheme, self.host, self.port, self.path, "")

    def _key(self) -> tuple[Any, ...]:
        return (self.scheme, self.host, self.port, self.target)


def is_loopback(host: str) -> bool:
    """Return True if the host is this machine by its name or address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    import ipaddress  # only security options need it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Address(OptionType, Generic[T]):
    """A URL in its normal form, or None. The text may hold a password, so no error has it."""

    annotation = "str | Secret | None"
    form: type[T]

    def read(self, secret: Secret) -> T | str:
        """Return the normal form, or a sentence about the fault of the text."""
        raise NotImplementedError

    def conceal(self, value: Any) -> Any:
        """Return the text as a Secret, because it may hold a password."""
        return value if isinstance(value, self.form) else conceal(value)

    def check(self, value: Any) -> T | None:
        if value is None or isinstance(value, self.form):
            return value
        if isinstance(value, Concealed):
            raise ValueFault(f"not a str but {value.type_name}")
        secret = Secret(value)
        del value
        found = self.read(secret)
        if isinstance(found, str):
            raise ValueFault(found)
        return found


class Endpoint(Address[Url]):
    """The address of a token endpoint, or None."""

    expected = "an https:// URL, or None"
    form = Url

    def read(self, secret: Secret) -> Url | str:
        return read_url(secret)


class Endpoints(OptionType):
    """Several URLs. The normal form is a tuple."""

    expected = "a list of https:// URLs, or text with commas between them"
    annotation = "str | Sequence[str]"

    def conceal(self, value: Any) -> Any:
        """Return each text as a Secret, because it may hold a password."""
        if isinstance(value, str):
            value = value.split(",")
        elif isinstance(value, Secret):
            value = value.reveal().split(",")
        if isinstance(value, (list, tuple)):
            return [each if isinstance(each, Url) else conceal(each) for each in value if each]
        return conceal(value)

    def check(self, value: Any) -> tuple[Url, ...]:
        value = self.conceal(value)
        if not isinstance(value, list):
            raise ValueFault("not a list")
        found: list[Url] = []
        endpoint = Endpoint()
        for each in value:
            url = endpoint.check(each)
            if url is not None:
                found.append(url)
        return tuple(found)


def read_url(secret: Secret) -> Url | str:
    """Return the URL, or a sentence about its fault."""
    found = split_url(secret)
    return found if isinstance(found, str) else _checked(*found)


def split_url(secret: Secret) -> tuple[SplitResult, int | None] | str:
    """Return the parts of a URL and its port, or a sentence about its fault."""
    text = secret.reveal().strip()
    if len(text) > _LENGTH_MAX or any(not "!" <= char <= "~" for char in text):
        return "longer than 2048 characters, or with spaces, control or non-ASCII characters"
    from urllib.parse import urlsplit  # only token endpoints and proxies need it

    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "not a URL with a valid host and port"
    return parts, port


def _checked(parts: SplitResult, port: int | None) -> Url | str:
    scheme = parts.scheme
    if scheme == "file":
        return "a file: URL; give the path in sasl_oauthbearer_token_file"
    if scheme not in _PORTS:
        return "the scheme is neither https nor http"
    if "@" in parts.netloc:
        return (
            "a user or password in the URL; use sasl_oauthbearer_client_id and "
            "sasl_oauthbearer_client_secret"
        )
    if not parts.hostname or port == 0 or "\\" in parts.netloc:
        return "not a URL with a valid host and port"
    if parts.fragment:
        return "a URL with a fragment"
    return Url(scheme, parts.hostname, port or _PORTS[scheme], parts.path or "/", parts.query)
