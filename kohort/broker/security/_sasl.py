"""The login of one connection (KIP-43, KIP-368).

A table has the treatment of each kind of request in each phase.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kohort.broker.security._listeners import Listener
from kohort.broker.security._mechanism import (
    CredentialError,
    LoginBrokenError,
    LoginRefusedError,
    ServerMechanism,
)
from kohort.broker.security._state import SecurityState
from kohort.errors import ErrorCode
from kohort.protocol import ApiKey
from kohort.types import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""Principal of clients that do not log in."""
MAX_LOGIN_FRAME = 524_288
"""Kafka's ``sasl.server.max.receive.size``, the largest frame in bytes during a login."""
MIN_RELOGIN_S = 1.0
"""Seconds between the beginnings of two re-logins of a connection."""


class Phase(Enum):
    """Phase of a login. The values name the requests that it allows."""

    FIRST_REQUEST = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake, after ApiVersions"
    TOKENS = "SaslAuthenticate"
    RAW_TOKENS = "tokens without a header, after SaslHandshake version 0"
    OPEN = "any request"
    OTHER_MECHANISM = "none: a re-login by another mechanism"
    FAILED = "none: the login failed"


class Step(Enum):
    """Treatment of a request."""

    SERVE = "serve it"
    REFUSE = "respond with ILLEGAL_SASL_STATE and close"
    CLOSE = "close"


_S, _R, _C = Step.SERVE, Step.REFUSE, Step.CLOSE
_TABLE = {
    # phase: ApiVersions, SaslHandshake, SaslAuthenticate, any other
    Phase.FIRST_REQUEST: (_S, _S, _C, _C),
    Phase.HANDSHAKE: (_C, _S, _C, _C),
    Phase.TOKENS: (_R, _R, _S, _R),
    Phase.RAW_TOKENS: (_C, _C, _C, _C),
    Phase.OPEN: (_S, _S, _S, _S),
    Phase.OTHER_MECHANISM: (_C, _C, _C, _C),
    Phase.FAILED: (_C, _C, _C, _C),
}
_COLUMNS: dict[int, int] = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 2,
}


class HandshakeResult(NamedTuple):
    """Response to SaslHandshake."""

    error: ErrorCode
    mechanisms: list[str]


class TokenResult(NamedTuple):
    """Response to SaslAuthenticate."""

    error: ErrorCode
    message: str = ""
    token: bytes = b""
    lifetime_ms: int = 0


_NO_SASL = HandshakeResult(ErrorCode.ILLEGAL_SASL_STATE, [])
_AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"


class ClientLogin:
    """Login of one connection. ``time`` returns seconds of the cluster's clock.

    ``principal`` is the user of the client certificate at first, and later the one logged in.
    """

    def __init__(
        self,
        state: SecurityState,
        listener: Listener,
        time: Callable[[], float],
        principal: str = ANONYMOUS,
    ) -> None:
        self.principal: str = principal
        self.by_token: bool = False
        """True after a login by a delegation token."""
        self.phase = Phase.FIRST_REQUEST if listener.uses_sasl else Phase.OPEN
        self.listener = listener
        self._state = state
        self._time = time
        self._mechanism = ""
        self._exchange: ServerMechanism | None = None
        self._token_count = 0
        self._logged_in = not listener.uses_sasl
        self._session_end: float | None = None
        self._relogin_began: float | None = None

    @property
    def max_frame(self) -> int | None:
        """Largest frame in bytes during a login, None for the limit of all requests."""
        return None if self.phase is Phase.OPEN else MAX_LOGIN_FRAME

    @property
    def mechanism(self) -> str:
        """The mechanism of the login, empty if there is none."""
        return self._mechanism

    @property
    def steps(self) -> int:
        """Number of the client's tokens in the current login."""
        return self._token_count

    @property
    def is_relogin(self) -> bool:
        """True while a logged-in client logs in again."""
        return self._logged_in and self.phase is not Phase.OPEN

    def step(self, key: int) -> Step:
        """Return the treatment of a request with this API key."""
        is_expired = self._session_end is not None and self._time() >= self._session_end
        if self.phase is Phase.OPEN and is_expired:
            # The session has expired. The connection ends unless the client logs in again.
            again = key == ApiKey.SASL_HANDSHAKE and self._may_login_again()
            return Step.SERVE if again else Step.CLOSE
        return _TABLE[self.phase][_COLUMNS.get(key, 3)]

    def on_api_versions(self) -> None:
        """Note a response to ApiVersions without error. There is only one before the login."""
        if self.phase is Phase.FIRST_REQUEST:
            self.phase = Phase.HANDSHAKE

    def fail(self) -> None:
        """End the login. The connection is closed after the response."""
        self.phase = Phase.FAILED

    def handshake(self, mechanism: str, version: int) -> HandshakeResult:
        """Choose a mechanism. LoginBrokenError if the connection ends without a response."""
        if self.phase is Phase.OPEN:
            if not self._may_login_again():
                return _NO_SASL
            self._relogin_began = self._time()
        enabled = self._state.mechanisms(self.listener)
        if mechanism not in enabled:
            self.fail()
            if self._logged_in:
                raise LoginBrokenError(f"a re-login by {mechanism!r}, which is not enabled")
            return HandshakeResult(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
        if self._logged_in and mechanism != self._mechanism:
            self.phase = Phase.OTHER_MECHANISM
            return HandshakeResult(ErrorCode.NONE, enabled)
        self._mechanism = mechanism
        self._exchange = self._state.begin(self.listener, mechanism)
        self._token_count = 0
        self.phase = Phase.TOKENS if version else Phase.RAW_TOKENS
        return HandshakeResult(ErrorCode.NONE, enabled)

    def authenticate(self, token: bytes) -> TokenResult:
        """Process the next token of the client. LoginBrokenError as in :meth:`handshake`."""
        if self.phase is Phase.OPEN:
            return TokenResult(ErrorCode.ILLEGAL_SASL_STATE, _AFTER_LOGIN)
        assert self._exchange is not None
        self._token_count += 1
        again = self.is_relogin
        try:
            answer = self._exchange.evaluate(token)
            lifetime_ms = self._complete() if self._exchange.identity is not None else 0
        except LoginBrokenError:
            self.fail()
            raise
        except LoginRefusedError as error:
            self.fail()
            return TokenResult(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except CredentialError:
            self.fail()
            during = "re-authentication" if again else "authentication"
            return TokenResult(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed during {during} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}",
            )
        return TokenResult(ErrorCode.NONE, "", answer, lifetime_ms)

    def _complete(self) -> int:
        """Open the connection; return the lifetime of the session in milliseconds."""
        assert self._exchange is not None
        identity = self._exchange.identity
        assert identity is not None
        principal = f"User:{identity.user}"
        if self._logged_in and principal != self.principal:
            before, after = (name.replace(":", ".", 1) for name in (self.principal, principal))
            raise LoginRefusedError(
                f"Cannot change principals during re-authentication from {before}: {after}"
            )
        self.principal, self.by_token = principal, identity.by_token
        self._logged_in, self._exchange, self.phase = True, None, Phase.OPEN
        limits = []
        if (most := self._state.session_lifetime_ms(self.listener, self._mechanism)) > 0:
            limits.append(most)
        if identity.expires_at_ms is not None:
            limits.append(max(0, identity.expires_at_ms - self._state.now_ms()))
        self._session_end = self._time() + min(limits) / 1000 if limits else None
        return min(limits, default=0)

    def _may_login_again(self) -> bool:
        if self._session_end is None:
            return False
        began = self._relogin_began
        return began is None or self._time() - began >= MIN_RELOGIN_S
