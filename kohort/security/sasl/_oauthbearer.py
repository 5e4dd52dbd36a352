"""SASL OAUTHBEARER (RFC 7628), and the choice of the source of its tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.errors import (
    CredentialsUnavailableError,
    OAuthTokenError,
    OAuthTokenUnavailableError,
    SaslServerError,
)
from kohort.security._secrets import mask, printable, utf8_of
from kohort.security.oauth._tokens import LEAST_LEFT, Clock, Token, TokenSource, duration

if TYPE_CHECKING:
    from kohort.config import SecurityConfig

SHORTEST_SESSION = 1.0
"""Seconds. A broker that gives less accepted a token that is about to expire."""
MAX_STATUS = 65_536
_SEPARATOR = b"\x01"


class OAuthBearerExchange:
    """A login of one message, and of an empty second one after a refusal."""

    def __init__(self, source: TokenSource, token: Token, asked_at: float) -> None:
        self.token = token
        self.is_from_earlier = token.obtained_at < asked_at
        """True if the token was obtained for an earlier login."""
        subject = (token.claims or {}).get(source.subject)
        self.principal = printable(subject if isinstance(subject, str) else token.principal)
        self._source = source
        self._status = ""
        self._refused = False

    def first(self) -> bytes:
        """Return the token in the client's first message.

        Raises OAuthTokenUnavailableError if it expired by now: a later login gets another one.
        """
        now = self._source.clock()
        if not self.token.is_sendable(now):
            raise OAuthTokenUnavailableError(
                f"the OAuth token expires in {duration(self.token.left(now) or 0.0)}: "
                "it is not sent"
            )
        header = f"n,a={_escaped_name(self.token.principal)}," if self.token.principal else "n,,"
        extensions = "".join(f"\x01{name}={value}" for name, value in self.token.extensions.items())
        return (
            header.encode()
            + b"\x01auth=Bearer "
            + utf8_of(self.token.value)
            + extensions.encode()
            + b"\x01\x01"
        )

    async def next(self, challenge: bytes) -> bytes | None:
        """Return None after an empty response, and the closing message after a refusal."""
        if self._refused:
            raise SaslServerError("the broker accepted an OAuth token after it refused it")
        if not challenge:
            return None
        self._refused = True
        self._status = _status(challenge, self.shown)
        return _SEPARATOR

    def is_valid_for(self, seconds: float) -> bool:
        """True if the token lives longer than that."""
        left = self.token.left(self._source.clock())
        return left is None or left > seconds + LEAST_LEFT

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the broker's limit, or the life of the token if the broker cannot say.

        Raises OAuthTokenError for less than a second, or OAuthTokenUnavailableError if the token
        is about to end.
        """
        if lifetime_ms is None:
            return self.token.left(self._source.clock())
        if lifetime_ms / 1000 < SHORTEST_SESSION:
            self._source.discard(self.token)
            now = self._source.clock()
            left = self.token.left(now)
            ends_soon = left is not None and left < SHORTEST_SESSION
            kind = OAuthTokenUnavailableError if ends_soon else OAuthTokenError
            raise kind(
                f"the broker accepted the OAuth token for {lifetime_ms} ms only: it is about to "
                f"expire, or the clocks differ. {self.token.described(now)}"
            )
        return lifetime_ms / 1000

    def shown(self, message: str) -> str:
        """Return the broker's message, escaped, without secrets."""
        return printable(mask(message, self.token.value))

    def refusal(self, message: str) -> str:
        """Return the message with facts about the token, because the broker gives no reason."""
        self._source.discard(self.token)
        text = message if message and message != "{}" else self._status
        now = self._source.clock()
        return f"{self.shown(text)}. {self.token.described(now)}"


class OAuthBearerMechanism:
    """OAUTHBEARER for all connections of a client."""

    name = "OAUTHBEARER"

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def login(self, host: str) -> OAuthBearerExchange:
        """Return a login with the current token."""
        asked_at = self._source.clock()
        return OAuthBearerExchange(self._source, await self._source.get(), asked_at)

    async def login_again(self, refused: object, host: str) -> OAuthBearerExchange | None:
        """Return a login with a new token, if the refused one was from an earlier login."""
        if not isinstance(refused, OAuthBearerExchange) or not refused.is_from_earlier:
            return None
        self._source.discard(refused.token)
        return await self.login(host)

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no credentials come, or None."""
        return self._source.waiting.credentials_obstacle(now)


def oauthbearer_mechanism(config: SecurityConfig, clock: Clock | None) -> OAuthBearerMechanism:
    """Return OAUTHBEARER with the source that the options describe. InvalidOptionError."""
    from kohort.security.oauth._token_sources import token_source

    return OAuthBearerMechanism(token_source(config, clock))


def _escaped_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _status(challenge: bytes, shown: Callable[[str], str]) -> str:
    """Return the status and scope of a refusal, or the unchanged text if it is no JSON."""
    text = challenge[:MAX_STATUS].decode(errors="replace")
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return shown(text)
    if not isinstance(found, dict):
        return shown(text)
    parts = (found.get(name) for name in ("status", "scope", "openid-configuration"))
    return ", ".join(shown(each) for each in parts if isinstance(each, str))
