"""SASL PLAIN (RFC 4616)."""

from __future__ import annotations

from kohort.config import SaslConfig
from kohort.errors import CredentialsUnavailableError, SaslServerError, SecurityError
from kohort.security._secrets import mask, printable, text_of, utf8_of
from kohort.security.sasl._credentials import Credentials, CredentialsSource


class PlainExchange:
    """A login of one message: user name and password."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.principal = printable(credentials.username)
        if "\0" in credentials.username or "\0" in text_of(credentials.password):
            raise SecurityError("PLAIN allows no NUL character in the user name or the password")

    def first(self) -> bytes:
        """Return both, after an empty authorization id."""
        return (
            b"\0" + self.credentials.username.encode() + b"\0" + utf8_of(self.credentials.password)
        )

    async def next(self, challenge: bytes) -> bytes | None:
        """Return None, because the login has one message."""
        if challenge:
            raise SaslServerError(f"the response to a PLAIN login has {len(challenge)} bytes")
        return None

    def is_valid_for(self, seconds: float) -> bool:
        """Return True, because the broker decides how long credentials are valid."""
        return True

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the broker's limit."""
        return lifetime_ms / 1000 if lifetime_ms else None

    def shown(self, message: str) -> str:
        """Return the broker's message, escaped, without secrets."""
        return printable(mask(message, self.credentials.password))

    def refusal(self, message: str) -> str:
        """Return the message, and the options to check."""
        return f"{self.shown(message)}. Check the user name and the password"


class PlainMechanism:
    """PLAIN for all connections of a client."""

    name = "PLAIN"

    def __init__(self, source: CredentialsSource) -> None:
        self._source = source

    async def login(self, host: str) -> PlainExchange:
        """Return a login with the current credentials."""
        return PlainExchange(await self._source.get())

    async def login_again(self, refused: object, host: str) -> PlainExchange | None:
        """Return a login with other credentials, or None if the source has none."""
        if not isinstance(refused, PlainExchange):
            return None
        other = await self._source.get_other(refused.credentials)
        return None if other is None else PlainExchange(other)

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no credentials come, or None."""
        return self._source.waiting.credentials_obstacle(now)


def plain_mechanism(config: SaslConfig) -> PlainMechanism:
    """Return PLAIN with the credentials of the options."""
    return PlainMechanism(CredentialsSource.of(config))
