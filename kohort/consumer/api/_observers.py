"""Observers of the consumers of this process. The pytest plugin has one while a test runs."""

from __future__ import annotations

from typing import Any, Protocol


class ConsumerObserver(Protocol):
    """Methods that are called for each consumer. They must not raise."""

    def opened(self, consumer: Any) -> None:
        """Note a new consumer."""

    def failing(self, consumer: Any) -> None:
        """Note that an exception leaves the block of a consumer, which is still open."""


observers: list[ConsumerObserver] = []
