"""Tests that are one text for both APIs: async tests that get the class of their consumer.

``EACH_API`` runs such a test with KafkaConsumer, too. The test awaits it by AwaitedConsumer. For
admin clients there are ``EACH_ADMIN`` and AwaitedAdmin.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

import pytest

from kohort import (
    AsyncKafkaAdminClient,
    AsyncKafkaConsumer,
    ConsumerRecord,
    KafkaAdminClient,
    KafkaConsumer,
)


class _Awaited:
    """An object of the sync API that a test awaits as it awaits its async twin.

    Its calls block the event loop and never suspend.
    """

    sync_class: ClassVar[Any]
    async_class: ClassVar[Any]

    def __init__(self, *topics: str, **options: Any) -> None:
        self._object = self.sync_class(*topics, **options)

    @classmethod
    def from_properties(cls, *arguments: Any, **options: Any) -> Self:
        made = cls.__new__(cls)
        made._object = cls.sync_class.from_properties(*arguments, **options)
        return made

    def __getattr__(self, name: str) -> Any:
        """Return the attribute. Make a method awaitable if that of the async class is."""
        found = getattr(self._object, name)
        if not inspect.iscoroutinefunction(getattr(self.async_class, name, None)):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            return found(*arguments, **options)

        return call

    async def __aenter__(self) -> Self:
        self._object.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._object.__exit__(*error)
        thread = self._object._driver.thread
        assert thread is None or not thread.is_running


class AwaitedAdmin(_Awaited):
    """A KafkaAdminClient that a test awaits as it awaits an AsyncKafkaAdminClient."""

    sync_class = KafkaAdminClient
    async_class = AsyncKafkaAdminClient


class AwaitedConsumer(_Awaited):
    """A KafkaConsumer that a test awaits as it awaits an AsyncKafkaConsumer."""

    sync_class = KafkaConsumer
    async_class = AsyncKafkaConsumer

    def __aiter__(self) -> Self:
        iter(self._object)
        return self

    async def __anext__(self) -> ConsumerRecord[Any, Any]:
        try:
            return next(self._object)
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
EACH_ADMIN = pytest.mark.parametrize(
    ("admin_class", "anyio_backend"),
    [
        pytest.param(AwaitedAdmin, "asyncio", id="sync"),
        pytest.param(AsyncKafkaAdminClient, "asyncio", id="asyncio"),
        pytest.param(AsyncKafkaAdminClient, "trio", id="trio"),
    ],
)
"""Runs an async test with KafkaAdminClient, and with AsyncKafkaAdminClient on each event loop."""
