"""``kohort.compat.aiokafka`` with aiokafka installed, and as if it were not."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

import kohort.compat
import kohort.compat.aiokafka as with_peer
from tests.interop.brokers import Broker

MakeConsumer = Callable[..., Any]


@pytest.fixture
def anyio_backend() -> str:
    """Return asyncio: aiokafka has no other event loop."""
    return "asyncio"


@pytest.fixture
def alone() -> Iterator[Any]:
    """Return the package, imported where aiokafka is not installed."""
    package = "kohort.compat.aiokafka"
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(("aiokafka.", package)) or name == "aiokafka"
    }
    for name in hidden:
        del sys.modules[name]
    sys.modules["aiokafka"] = None  # type: ignore[assignment]
    try:
        yield import_module(package)
    finally:
        for name in [each for each in sys.modules if each.startswith(package)]:
            del sys.modules[name]
        del sys.modules["aiokafka"]
        sys.modules.update(hidden)
        kohort.compat.aiokafka = with_peer


@pytest.fixture(params=["with aiokafka", "alone"])
def compat(request: pytest.FixtureRequest) -> Any:
    """Return the package in both cases."""
    return with_peer if request.param != "alone" else request.getfixturevalue("alone")


@pytest.fixture
async def make(compat: Any, broker: Broker, anyio_backend: str) -> AsyncIterator[MakeConsumer]:
    """Return a function that makes consumers. They are stopped after the test."""
    made: list[Any] = []

    def make_consumer(*topics: str, **options: Any) -> Any:
        defaults = {
            "bootstrap_servers": broker.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 100,
        }
        made.append(compat.AIOKafkaConsumer(*topics, **{**defaults, **options}))
        return made[-1]

    yield make_consumer
    for consumer in made:
        await consumer.stop()
