"""Consumers of five libraries with one interface, for measurements of a consumer that waits.

Each has its library's default options, but reads from the earliest record. The libraries are
imported where they are used, because a measured process has one of them only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

KOHORT, KOHORT_ASYNC = "kohort", "kohort async"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "confluent-kafka", "aiokafka", "kafka-python"


class Ask(NamedTuple):
    """Topic to read, in a group with this consumer as its only member."""

    bootstrap_servers: str
    topic: str
    group: str

    def keywords(self) -> dict[str, Any]:
        """Return the options for kohort, aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
        }


class Consumer(Protocol):
    """Synchronous consumer."""

    def poll(self, timeout_ms: int) -> list[bytes]:
        """Return the values of the next records, or nothing after the time-out."""


class AsyncConsumer(Protocol):
    """Asynchronous consumer."""

    async def start(self) -> None:
        """Connect to the cluster."""

    async def poll(self, timeout_ms: int) -> list[bytes]:
        """Return the values of the next records, or nothing after the time-out."""


class _Polled:
    """Consumer of type ``kohort.KafkaConsumer`` or ``kafka.KafkaConsumer``."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, timeout_ms: int) -> list[bytes]:
        return _values(self._consumer.poll(timeout_ms=timeout_ms))


class _Confluent:
    """Consumer of type ``confluent_kafka.Consumer``."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self, timeout_ms: int) -> list[bytes]:
        message = self._consumer.poll(timeout_ms / 1000)
        return [] if message is None or message.error() else [message.value()]


class _Awaited:
    """Consumer of type ``kohort.AsyncKafkaConsumer`` or ``aiokafka.AIOKafkaConsumer``."""

    def __init__(self, consumer: Any, poll: Callable[..., Awaitable[Any]]) -> None:
        self._consumer = consumer
        self._poll = poll

    async def start(self) -> None:
        await self._consumer.start()

    async def poll(self, timeout_ms: int) -> list[bytes]:
        return _values(await self._poll(timeout_ms=timeout_ms))


def _values(records: Any) -> list[bytes]:
    return [record.value for batch in records.values() for record in batch]


def _kohort(ask: Ask) -> Consumer:
    from kohort import KafkaConsumer

    return _Polled(KafkaConsumer(ask.topic, **ask.keywords()))


def _kafka_python(ask: Ask) -> Consumer:
    from kafka import KafkaConsumer

    return _Polled(KafkaConsumer(ask.topic, **ask.keywords()))


def _confluent(ask: Ask) -> Consumer:
    from confluent_kafka import Consumer as Confluent

    consumer = Confluent(
        {
            "bootstrap.servers": ask.bootstrap_servers,
            "group.id": ask.group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([ask.topic])
    return _Confluent(consumer)


def _kohort_async(ask: Ask) -> AsyncConsumer:
    from kohort import AsyncKafkaConsumer

    consumer: Any = AsyncKafkaConsumer(ask.topic, **ask.keywords())
    return _Awaited(consumer, consumer.poll)


def _aiokafka(ask: Ask) -> AsyncConsumer:
    from aiokafka import AIOKafkaConsumer

    consumer: Any = AIOKafkaConsumer(ask.topic, **ask.keywords())
    return _Awaited(consumer, consumer.getmany)


SYNC: dict[str, Callable[[Ask], Consumer]] = {
    KOHORT: _kohort,
    CONFLUENT: _confluent,
    KAFKA_PYTHON: _kafka_python,
}
ASYNC: dict[str, Callable[[Ask], AsyncConsumer]] = {
    KOHORT_ASYNC: _kohort_async,
    AIOKAFKA: _aiokafka,
}
MODULES = {
    KOHORT: "kohort",
    KOHORT_ASYNC: "kohort",
    CONFLUENT: "confluent_kafka",
    AIOKAFKA: "aiokafka",
    KAFKA_PYTHON: "kafka",
}


def module_of(client: str) -> str:
    """Return the package that a client is imported from."""
    return MODULES[client]
