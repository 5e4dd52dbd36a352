"""Helpers of the tests for confluent-kafka's consumer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 90.0


def poll_until(consumer: Any, done: Callable[[], object]) -> list[Any]:
    """Poll until something is true, and return the messages."""
    messages: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline
        if (message := consumer.poll(0.05)) is not None:
            messages.append(message)
    return messages


def read(consumer: Any, count: int) -> list[Any]:
    """Return this many records and errors."""
    messages: list[Any] = consumer.consume(count, LIMIT_S)
    assert len(messages) == count
    return messages
