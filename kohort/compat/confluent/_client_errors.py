"""Errors of the client: ``error_cb`` gets them, or a log, and not the caller of a method."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from kohort.compat.confluent._values import KafkaError
from kohort.logs import get_logger

_REPEAT_S = 10.0
"""Time in which an error is reported once. kohort repeats its errors."""

_OVERDUE = "Application maximum poll interval ({:.0f}ms) exceeded by {:.0f}ms"


def overdue_error(seconds: float, limit: float) -> KafkaError:
    """Return the error of a program that has not polled for longer than ``limit`` seconds."""
    text = _OVERDUE.format(1000 * limit, 1000 * (seconds - limit))
    return KafkaError(KafkaError._MAX_POLL_EXCEEDED, text)


class ClientErrors:
    """The errors that one consumer has reported lately."""

    def __init__(
        self, callback: Callable[[KafkaError], Any] | None, logger: logging.Logger | None
    ) -> None:
        self._callback = callback
        self._logger: logging.Logger = logger or get_logger("kohort.compat")
        self._reported: dict[tuple[Any, ...], float] = {}
        self._has_reached = False

    def look_for_brokers(self, native: Any) -> None:
        """Report why the client of a consumer has reached no broker yet."""
        if self._has_reached:
            return
        cluster = native.explain().as_dict()["cluster"]
        self._has_reached = cluster["reached"]
        if cluster["last_error"] is not None:
            self.report(KafkaError(KafkaError._TRANSPORT, cluster["last_error"]))

    def report(self, error: KafkaError) -> None:
        """Give an error to ``error_cb``, or log it, unless it was reported a short time ago."""
        if self.is_repeated((error.code(), error.str())):
            return
        if self._callback is None:
            self._logger.warning("%s", error)
        else:
            self._callback(error)

    def is_repeated(self, key: tuple[Any, ...]) -> bool:
        """Return True if an error was reported a short time ago. Otherwise it is now."""
        now = time.monotonic()
        if now - self._reported.get(key, -math.inf) < _REPEAT_S:
            return True
        self._reported[key] = now
        return False
