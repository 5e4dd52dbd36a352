"""Texts of errors and logs, with names from others made safe."""

from __future__ import annotations

from typing import TypeVar

from kohort.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kohort.types import escaped

E = TypeVar("E", bound=BaseException)

NONSENSE = (
    "That is not the Kafka protocol: the connection is closed and opened again. If it comes again, "
    "check that the listener speaks security_protocol (plaintext by default), without a proxy that "
    "changes the bytes"
)
LOOKS_LIKE = "it looks like"
LOOKS_LIKE_TLS = "it looks like TLS"
RAISE = ". If the broker sends responses of this size, raise receive_message_max_bytes"


def address(host: str, port: int) -> str:
    """``host:port``, as it may stand in a message; an IPv6 address in brackets."""
    shown = escaped(host)
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def in_seconds(seconds: float | None) -> str:
    """A duration as it may stand in a message: ``2 s`` for 1.99991; None is no limit."""
    if seconds is None:
        return "any time"
    digits = 0 if seconds >= 10 else 1 if seconds >= 1 else 3
    return f"{round(seconds, digits):g} s"


def reason(error: BaseException) -> str:
    """What an exception says, without numbers of the system; its name if it says nothing."""
    text = error.strerror if isinstance(error, OSError) else None
    return escaped(text or str(error)) or type(error).__name__


def with_principal(error: E, principal: str | None) -> E:
    """Return an error about a missing right with its principal, also in the text.

    Other errors, and those that have one, stay as they are.
    """
    if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
        if principal is not None and error.principal is None:
            error.principal = principal
            text = str(error).replace("this client needs", f"{escaped(principal)} needs", 1)
            error.args = (text,)
    return error
