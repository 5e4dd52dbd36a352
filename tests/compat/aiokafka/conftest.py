"""``kohort.compat.aiokafka`` with aiokafka installed, and as if it were not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import kohort.compat.aiokafka as with_peer
from tests.compat.kit import reading_options, without_peer
from tests.interop.brokers import Broker

MakeConsumer = Callable[..., Any]


@pytest.fixture
def anyio_backend() -> str:
    """Return asyncio: aiokafka has no other event loop."""
    return "asyncio"


@pytest.fixture
def alone() -> Iterator[Any]:
    """Return the package, imported where aiokafka is not installed."""
    with without_peer("aiokafka", "kohort.compat.aiokafka") as package:
        yield package


@pytest.fixture(params=["with aiokafka", "alone"])
def compat(request: pytest.FixtureRequest) -> Any:
    """Return the package in both cases."""
    return with_peer if request.param != "alone" else request.getfixturevalue("alone")


@pytest.fixture
async def make(compat: Any, broker: Broker, anyio_backend: str) -> AsyncIterator[MakeConsumer]:
    """Return a function that makes consumers. They are stopped after the test."""
    made: list[Any] = []

    def make_consumer(*topics: str, **options: Any) -> Any:
        made.append(compat.AIOKafkaConsumer(*topics, **reading_options(broker, **options)))
        return made[-1]

    yield make_consumer
    for consumer in made:
        await consumer.stop()
