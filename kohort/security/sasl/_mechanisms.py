"""SASL mechanisms: their interface to the transport, and the choice of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kohort.config import SecurityConfig
    from kohort.errors import CredentialsUnavailableError


class LoginExchange(Protocol):
    """The client's side of one login. It has its credentials or its token already."""

    @property
    def principal(self) -> str:
        """The name that logs in, escaped."""
        ...

    def first(self) -> bytes:
        """Return the first message to the broker."""
        ...

    async def next(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None if the login is complete.

        Raises SaslServerError if the broker breaks the rules of the mechanism. None says that the
        broker proved what the mechanism asks it to prove.
        """
        ...

    def is_valid_for(self, seconds: float) -> bool:
        """True if a broker that reads the first message after ``seconds`` accepts it."""
        ...

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the seconds that the session lasts, or None without an end.

        ``lifetime_ms`` is the broker's word, 0 without an end; None if it cannot say. Raises
        OAuthTokenError if the session is over before it can be used.
        """
        ...

    def shown(self, message: str) -> str:
        """Return a message of the broker, escaped, without secrets."""
        ...

    def refusal(self, message: str) -> str:
        """Return the broker's message about a refused login, escaped, with what to check."""
        ...


class Mechanism(Protocol):
    """A SASL mechanism with its source of credentials, for all connections of a client."""

    @property
    def name(self) -> str:
        """The name that the broker knows, such as ``SCRAM-SHA-256``."""
        ...

    async def login(self, host: str) -> LoginExchange:
        """Get credentials or a token for a login at ``host``, the address used to connect.

        Raises SecurityError if there are none.
        """
        ...

    async def login_again(self, refused: LoginExchange, host: str) -> LoginExchange | None:
        """Return a login with credentials that differ from the refused ones, or None."""
        ...

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no credentials come, or None.

        ``now`` is a time of the event loop's clock. Safe from other threads.
        """
        ...


def mechanism_of(
    config: SecurityConfig, *, clock: Callable[[], float] | None = None
) -> Mechanism | None:
    """Return the mechanism of the options, or None if ``security_protocol`` has no login.

    ``clock`` gives seconds since the epoch, to compare with the expiry of tokens; None is the clock
    of the system. Raises InvalidOptionError for options that do not make a login, and for a
    missing extra.
    """
    if not config.uses_sasl:
        return None
    name = config.sasl.sasl_mechanism
    if name == "PLAIN":
        from kohort.security.sasl._plain import plain_mechanism

        return plain_mechanism(config.sasl)
    if name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        from kohort.security.sasl._scram import scram_mechanism

        return scram_mechanism(config.sasl)
    if name == "GSSAPI":
        from kohort.security.sasl._gssapi import gssapi_mechanism

        return gssapi_mechanism(config.sasl)
    if name == "AWS_MSK_IAM":
        from kohort.security.sasl._msk_iam import msk_iam_mechanism

        return msk_iam_mechanism()
    from kohort.security.sasl._oauthbearer import oauthbearer_mechanism

    return oauthbearer_mechanism(config, clock)
