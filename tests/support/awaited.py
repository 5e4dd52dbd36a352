"""Tests that are one text for both APIs: async tests that get the class of their consumer.

``EACH_API`` runs such a test with KafkaConsumer, too. The test awaits it by AwaitedConsumer.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer


class AwaitedConsumer:
    """A KafkaConsumer that a test awaits as it awaits an AsyncKafkaConsumer.

    Its calls block the event loop and never suspend.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        self._consumer = KafkaConsumer(*topics, **options)

    @classmethod
    def from_properties(cls, *arguments: Any, **options: Any) -> Self:
        made = cls.__new__(cls)
        made._consumer = KafkaConsumer.from_properties(*arguments, **options)
        return made

    def __getattr__(self, name: str) -> Any:
        """Return the attribute. Make a method awaitable if that of AsyncKafkaConsumer is."""
        found = getattr(self._consumer, name)
        if not inspect.iscoroutinefunction(getattr(AsyncKafkaConsumer, name, None)):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            return found(*arguments, **options)

        return call

    async def __aenter__(self) -> Self:
        self._consumer.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._consumer.__exit__(*error)
        thread = self._consumer._driver.thread
        assert thread is None or not thread.is_running

    def __aiter__(self) -> Self:
        iter(self._consumer)
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return next(self._consumer)
        except StopIteration:
            raise StopAsyncIteration from None


_SYNC = pytest.param(AwaitedConsumer, "asyncio", id="sync")
_ASYNCIO = pytest.param(AsyncKafkaConsumer, "asyncio", id="asyncio")
_TRIO = pytest.param(AsyncKafkaConsumer, "trio", id="trio")
_NAMES = ("consumer_class", "anyio_backend")

EACH_API = pytest.mark.parametrize(_NAMES, [_SYNC, _ASYNCIO, _TRIO])
"""Runs an async test with KafkaConsumer, and with AsyncKafkaConsumer on each event loop."""
EACH_API_ON_ASYNCIO = pytest.mark.parametrize(_NAMES, [_SYNC, _ASYNCIO])
"""Runs an async test with both APIs, for calls that trio does not allow."""
