"""Observers of the consumers of this process. The pytest plugin has one while a test runs."""

from __future__ import annotations

from typing import Any, Protocol

from kohort.consumer.driver._driver import DriverOwner


class ConsumerObserver(Protocol):
    """Methods that are called for each consumer. They must not raise."""

    def opened(self, consumer: Any) -> None:
        """Note a new consumer."""

    def failing(self, consumer: Any) -> None:
        """Note that an exception leaves the block of a consumer, which is still open."""


observers: list[ConsumerObserver] = []


class ObservedConsumer(DriverOwner):
    """A consumer that notifies the observers."""

    def _note_opened(self) -> None:
        """Note that the consumer is complete."""
        for observer in observers:
            observer.opened(self)

    def _note_left(self, error: type[BaseException] | None) -> None:
        """Note the exception that left the block, before the consumer is closed."""
        if error is not None:
            for observer in observers:
                observer.failing(self)
        self._driver.life.note_left(error)
