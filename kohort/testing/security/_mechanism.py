"""The broker's side of a SASL mechanism: the part that all mechanisms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class CredentialError(Exception):
    """Login that failed for a reason that the client does not get."""


class LoginRefusedError(Exception):
    """Login that failed with a message for the client."""


class LoginBrokenError(Exception):
    """Login that ends without an answer, where an exception leaves Apache Kafka's own code."""


@dataclass(frozen=True, slots=True)
class Identity:
    """User who logged in.

    ``expires_at_ms``: the end of the credential's life in epoch milliseconds, None if it has none.
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
        """Return the answer to a token of the client. Raises one of the errors above."""
        ...


OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
