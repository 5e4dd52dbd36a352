"""The broker's side of a SASL mechanism: the interface that all mechanisms have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class CredentialError(Exception):
    """Failed login whose reason the client does not get."""


class LoginRefusedError(Exception):
    """Failed login with a message for the client."""


class LoginBrokenError(Exception):
    """Login that ends without a response, where Apache Kafka's code raises an unexpected
    exception.
    """


@dataclass(frozen=True, slots=True)
class Identity:
    """User of a complete login.

    ``expires_at_ms``: the expiry of the credential in epoch milliseconds, None if it has none.
    ``by_token``: the credential is a delegation token.
    """

    user: str
    expires_at_ms: int | None = None
    by_token: bool = False


class ServerMechanism(Protocol):
    """Login by one mechanism."""

    identity: Identity | None
    """User after a complete login; None before."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the response to a token of the client. Raises one of the errors above."""
        ...


OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
