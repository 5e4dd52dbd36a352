"""``kohort.compat.kafka_python`` with kafka-python installed, and as if it were not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kohort.compat.kafka_python as with_peer
from tests.compat.kit import reading_options, without_peer
from tests.interop.brokers import Broker

MakeConsumer = Callable[..., Any]


@pytest.fixture
def alone() -> Iterator[Any]:
    """The package, imported where kafka-python is not installed."""
    with without_peer("kafka", "kohort.compat.kafka_python") as package:
        yield package


@pytest.fixture(params=["with kafka-python", "alone"])
def compat(request: pytest.FixtureRequest) -> Any:
    """The package in both cases."""
    return with_peer if request.param != "alone" else request.getfixturevalue("alone")


@pytest.fixture
def make(compat: Any, broker: Broker) -> Iterator[MakeConsumer]:
    """Makes consumers that read from the beginning; they are closed after the test."""
    made: list[Any] = []

    def make_consumer(*topics: str, **options: Any) -> Any:
        made.append(compat.KafkaConsumer(*topics, **reading_options(broker, **options)))
        return made[-1]

    yield make_consumer
    for consumer in made:
        consumer.close(autocommit=False)
