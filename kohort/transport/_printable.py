"""Texts for errors and logs, in which names from other parties are escaped."""

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
    """Return ``host:port`` for a message, with an IPv6 address in brackets."""
    shown = escaped(host)
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"


def in_seconds(seconds: float | None) -> str:
    """Return a duration for a message, such as ``2 s`` for 1.99991. None means no limit."""
    if seconds is None:
        return "any time"
    digits = 0 if seconds >= 10 else 1 if seconds >= 1 else 3
    return f"{round(seconds, digits):g} s"


def reason(error: BaseException) -> str:
    """Return the message of an exception without an errno, or else its class name.

    An error of anyio without a message has that of its cause.
    """
    text = error.strerror if isinstance(error, OSError) else None
    if not (text or str(error)) and error.__cause__ is not None:
        return reason(error.__cause__)
    return escaped(text or str(error)) or type(error).__name__


def with_principal(error: E, principal: str | None) -> E:
    """Return an error about a missing right with its principal, which its text also names.

    Other errors, and errors with a principal, stay unchanged.
    """
    if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
        if principal is not None and error.principal is None:
            error.principal = principal
            text = str(error).replace("this client needs", f"{escaped(principal)} needs", 1)
            error.args = (text,)
    return error


def counted(number: int, noun: str) -> str:
    """Return text such as ``"1 partition"`` or ``"2 partitions"``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
