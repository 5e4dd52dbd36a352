"""``kohort.compat.kafka_python`` with kafka-python installed, and as if it were not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

import kohort.compat
import kohort.compat.kafka_python as with_peer
from tests.interop.brokers import Broker

MakeConsumer = Callable[..., Any]


@pytest.fixture
def alone() -> Iterator[Any]:
    """The package, imported where kafka-python is not installed."""
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith(("kafka.", "kohort.compat.kafka_python")) or name == "kafka"
    }
    for name in hidden:
        del sys.modules[name]
    sys.modules["kafka"] = None  # type: ignore[assignment]
    try:
        yield import_module("kohort.compat.kafka_python")
    finally:
        for name in [each for each in sys.modules if each.startswith("kohort.compat.kafka_python")]:
            del sys.modules[name]
        del sys.modules["kafka"]
        sys.modules.update(hidden)
        kohort.compat.kafka_python = with_peer


@pytest.fixture(params=["with kafka-python", "alone"])
def compat(request: pytest.FixtureRequest) -> Any:
    """The package in both cases."""
    return with_peer if request.param != "alone" else request.getfixturevalue("alone")


@pytest.fixture
def make(compat: Any, broker: Broker) -> Iterator[MakeConsumer]:
    """Makes consumers that read from the beginning; they are closed after the test."""
    made: list[Any] = []

    def make_consumer(*topics: str, **options: Any) -> Any:
        defaults = {
            "bootstrap_servers": broker.bootstrap_servers,
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 100,
        }
        made.append(compat.KafkaConsumer(*topics, **{**defaults, **options}))
        return made[-1]

    yield make_consumer
    for consumer in made:
        consumer.close(autocommit=False)
