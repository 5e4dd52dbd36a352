"""OAuth tokens: the results of providers, their lifetime, and one source for all connections.

A token is replaced after 80 % of its life, or with 2 s left. One that is about to expire is never
sent. A broker would accept it within its tolerance for clocks, and close the connection at the
first request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from kohort.config import Secret
from kohort.errors import OAuthTokenError, OAuthTokenUnavailableError
from kohort.logs import error_text, get_logger
from kohort.security._calls import CALL_SECONDS, Waiting, call
from kohort.security._secrets import printable, text_of
from kohort.security.oauth._jwt import MAX_TOKEN, claims_of, epoch_seconds, shown_claims, time_claim

logger = get_logger("kohort.security")

USED_PART = 0.8
"""Part of its life after which a token is replaced."""
LEAST_LEFT = 2.0
"""Seconds that a token needs to be sent, unless its life is short. With less it is replaced."""
LEAST_PART = 0.2
"""Part of a short life that has to be left."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")

Clock = Callable[[], float]


def duration(seconds: float) -> str:
    """Return seconds for a message, such as ``1.5 s`` or ``42 s``."""
    return f"{round(seconds, 1 if abs(seconds) < 10 else 0):g} s"


class Token:
    """A bearer token with the times that are known of it, in seconds since the epoch."""

    __slots__ = ("claims", "expires_at", "extensions", "life", "obtained_at", "principal", "value")

    def __init__(
        self,
        value: Secret,
        claims: Mapping[str, Any] | None,
        obtained_at: float,
        expires_at: float | None,
        extensions: Mapping[str, str],
        principal: str = "",
    ) -> None:
        self.value = value
        self.claims = claims
        self.obtained_at = obtained_at
        self.expires_at = expires_at
        self.extensions = extensions
        self.principal = principal
        """Authorization id to send, or empty."""
        self.life: float | None = None
        """Seconds from the issue of the token to its expiry, or None if unknown."""
        if expires_at is not None:
            issued_at = time_claim(claims, "iat")
            if issued_at is None or issued_at >= expires_at:
                issued_at = obtained_at
            self.life = max(expires_at - issued_at, 0.0)

    def left(self, now: float) -> float | None:
        """Return the seconds until it expires, or None if unknown."""
        return None if self.expires_at is None else self.expires_at - now

    def is_fresh(self, now: float) -> bool:
        """True if no replacement is needed yet."""
        left = self.left(now)
        if left is None or self.life is None:
            return False
        # A broker ends the session with the token, so a login with less time is of little use.
        return left > max(self.life * (1 - USED_PART), min(LEAST_LEFT, self.life / 2))

    def is_sendable(self, now: float) -> bool:
        """True if enough of its life is left to log in with it."""
        left = self.left(now)
        return left is None or self.life is None or left >= min(LEAST_LEFT, self.life * LEAST_PART)

    def described(self, now: float) -> str:
        """Return what a broker may object to, without the token."""
        left = self.left(now)
        if left is None:
            when = "and no known expiry"
        elif left < 0:
            when = f"and expired {duration(-left)} ago"
        else:
            when = f"and expires in {duration(left)}"
        return f"{shown_claims(self.claims)}, {when}"


def token_of(
    value: Secret,
    now: float,
    *,
    expires_at: Any = None,
    extensions: Mapping[str, str] | None = None,
    principal: str = "",
) -> Token:
    """Return a token that is safe to send. Raises OAuthTokenError, without the value.

    ``expires_at`` is used beside the claim ``exp``: the earlier of both counts.
    """
    if problem := _problem(value):
        raise OAuthTokenError(f"the OAuth token {problem}: it is not sent")
    claims = claims_of(text_of(value))
    times = (epoch_seconds(expires_at), time_claim(claims, "exp"))
    end = min((each for each in times if each is not None), default=None)
    token = Token(value, claims, now, end, _extensions(extensions), principal)
    if not token.is_sendable(now):
        left = token.left(now) or 0.0
        if left <= 0:
            raise OAuthTokenError(f"the OAuth token expired {duration(-left)} ago: it is not sent")
        raise OAuthTokenUnavailableError(
            f"the OAuth token expires in {duration(left)}: it is not sent"
        )
    return token


def _problem(secret: Secret) -> str:
    if not text_of(secret):
        return "is empty"
    if len(text_of(secret)) > MAX_TOKEN:
        return f"has more than {MAX_TOKEN} characters"
    return "" if _TOKEN.fullmatch(text_of(secret)) else "has characters that no token has"


def _extensions(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the SASL extensions, checked. OAuthTokenError for one that cannot be sent."""
    found = dict(given or {})
    for name, value in found.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise OAuthTokenError(
                f"the SASL extension {printable(str(name))!r} needs a name of letters, not 'auth'"
            )
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(value):
            raise OAuthTokenError(f"the SASL extension {name!r} has a value that cannot be sent")
    return found


class TokenSource:
    """The token of all connections of a client. One caller at a time requests a new one."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        *,
        retry_seconds: float = 0.0,
        keep: bool = True,
        subject: str = "sub",
        name: str = "the source of OAuth tokens",
        clock: Clock = time.time,
    ) -> None:
        """Create a source. ``name`` names the origin of ``fetch`` in texts."""
        self.clock = clock
        self.subject = subject
        """Claim that names the principal."""
        self.waiting = Waiting(name, OAuthTokenUnavailableError)
        self._keep = keep
        self._fetch = fetch
        self._retry_seconds = retry_seconds
        """Seconds for which one get() retries an unavailable token endpoint."""
        self._token: Token | None = None
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        """Time before which a failed replacement is not tried again."""
        self._lock: anyio.Lock | None = None

    async def get(self) -> Token:
        """Return a token to log in with. Raises OAuthTokenError."""
        if (token := self._usable()) is not None:
            return token
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:
            if (token := self._usable()) is None:
                token = await self._replace()
            return token

    def discard(self, refused: Token) -> None:
        """Forget a token that a broker refused."""
        if self._token is refused:
            self._token = None

    def _usable(self) -> Token | None:
        """Return the stored token, if it need not or cannot be replaced now."""
        now = self.clock()
        token = self._token
        if token is None or not self._keep or not token.is_sendable(now):
            return None
        return token if token.is_fresh(now) or now < self._not_before else None

    async def _replace(self) -> Token:
        end = anyio.current_time() + self._retry_seconds
        while True:
            is_news = self.waiting.error is None
            try:
                with self.waiting.asking():
                    self._token = await self._fetch()
            except OAuthTokenError as error:
                pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
                now = self.clock()
                if (old := self._token) is not None and old.is_sendable(now):
                    self._not_before = now + pause
                    self.waiting.error = None  # no login waits, because logins use the old one
                    logger.warning("the OAuth token is not replaced yet: %s", error_text(error))
                    return old
                self._token = None
                if not error.retriable or anyio.current_time() + pause >= end:
                    raise
                if is_news:
                    logger.warning("no OAuth token yet, trying on: %s", error_text(error))
                await anyio.sleep(pause)
            else:
                self._pause = FIRST_PAUSE
                return self._token


class _Provided:
    """The result of a token provider. The token is sealed at once, before anything can fail."""

    __slots__ = ("expires_at", "extensions", "kind", "principal", "value")

    def __init__(self, result: Any) -> None:
        self.expires_at: Any = None
        self.extensions: Any = None
        self.principal = ""
        if isinstance(result, tuple):
            nothing = (None,) * 4  # a local variable with the token would be shown in tracebacks
            result, self.expires_at, principal, self.extensions = (*result, *nothing)[:4]
            self.principal = principal if isinstance(principal, str) else ""
        elif not isinstance(result, str | Secret) and hasattr(result, "token"):
            self.expires_at = getattr(result, "expires_at", None)
            result = result.token
        self.value: Secret | None = None
        if isinstance(result, str | Secret):
            self.value = result if isinstance(result, Secret) else Secret(result)
        self.kind = type(result).__name__


def provider_source(
    provider: Any,
    extensions: Mapping[str, str] | None = None,
    *,
    subject: str = "sub",
    clock: Clock = time.time,
) -> TokenSource:
    """Return the source for a user's provider: an object with ``token()``, or a callable."""
    function = getattr(provider, "token", provider)
    extra = getattr(provider, "extensions", None)

    async def fetch() -> Token:
        try:
            given = _Provided(await call(function))
            if given.extensions is None:
                given.extensions = await call(extra) if callable(extra) else extra
        except OAuthTokenError:
            raise
        except TimeoutError as error:
            raise OAuthTokenUnavailableError(
                f"the OAuth token provider did not return within {CALL_SECONDS:g} s"
            ) from error
        except Exception as error:
            raise OAuthTokenUnavailableError(
                f"the OAuth token provider raised {type(error).__name__}"
            ) from error
        if given.value is None:
            raise OAuthTokenError(
                f"the OAuth token provider returned {given.kind}. "
                "kohort expected str, (str, expiry in epoch seconds), or an object with .token"
            )
        if not isinstance(given.extensions or {}, Mapping):
            raise OAuthTokenError(
                "the OAuth token provider gave extensions that are "
                f"{type(given.extensions).__name__}: expected a mapping of str to str"
            )
        merged = {**(extensions or {}), **(given.extensions or {})}
        return token_of(
            given.value,
            clock(),
            expires_at=given.expires_at,
            extensions=merged,
            principal=given.principal,
        )

    return TokenSource(fetch, subject=subject, name="the OAuth token provider", clock=clock)
