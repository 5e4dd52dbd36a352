"""Texts for errors and logs: names from other parties are escaped, and repetitions counted."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import TypeVar

import anyio

from kohort.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)
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
    if principal is None:
        return error
    if isinstance(error, TopicAuthorizationFailedError | GroupAuthorizationFailedError):
        if error.principal is not None:
            return error
        error.principal = principal
    elif not isinstance(error, ClusterAuthorizationFailedError):
        return error
    text = str(error).replace("this client needs", f"{escaped(principal)} needs", 1)
    error.args = (text,)
    return error


def counted(number: int, noun: str) -> str:
    """Return text such as ``"1 partition"`` or ``"2 partitions"``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


FIRST_INTERVAL_S = 5.0
LONGEST_INTERVAL_S = 600.0


class _Repeat:
    __slots__ = ("interval", "left_out", "next_at", "text")

    def __init__(self, text: str, next_at: float, interval: float) -> None:
        self.text = text
        self.next_at = next_at
        self.interval = interval
        self.left_out = 0


class RepeatedLog:
    """A log of messages by key. It logs an equal message again only after an interval.

    The interval is 5 s and doubles, up to 10 minutes. The next message has the number of omitted
    ones.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._known: dict[Hashable, _Repeat] = {}

    def log(self, key: Hashable, level: int, text: str, *, same: str | None = None) -> None:
        """Log a message about ``key``, unless it repeats the latest one.

        ``same`` is compared in place of the text, which may hold changing figures.
        """
        now = anyio.current_time()
        known = self._known.get(key)
        compared = text if same is None else same
        if known is None or known.text != compared:
            self._known[key] = _Repeat(compared, now + FIRST_INTERVAL_S, FIRST_INTERVAL_S)
            self._logger.log(level, "%s", text)
            return
        known.left_out += 1
        if now >= known.next_at:
            count = "once" if known.left_out == 1 else f"{known.left_out} times"
            self._logger.log(level, "%s (%s since the last line)", text, count)
            known.interval = min(known.interval * 2, LONGEST_INTERVAL_S)
            known.next_at = now + known.interval
            known.left_out = 0

    def ended(self, key: Hashable) -> None:
        """End the series of ``key``, so that its next message is logged at once."""
        self._known.pop(key, None)
