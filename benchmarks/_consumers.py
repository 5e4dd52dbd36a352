"""Consumers of five libraries with one interface, for measurements of one consumer.

Each has its library's default options, but reads from the earliest record. The libraries are
imported where they are used, because a measured process has one of them only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol

KOHORT, KOHORT_ASYNC = "kohort", "kohort async"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "confluent-kafka", "aiokafka", "kafka-python"
OURS = (KOHORT, KOHORT_ASYNC)


class Ask(NamedTuple):
    """Topic to read, in a group with this consumer as its only member."""

    bootstrap_servers: str
    topic: str
    group: str
    partitions: int = 0
    """Number of partitions to assign. 0 subscribes to the topic."""
    batch: int = 1
    """Most records of one call of confluent-kafka."""

    @property
    def topics(self) -> list[str]:
        """Return the topics to subscribe to."""
        return [] if self.partitions else [self.topic]

    def assigned(self, kind: Callable[[str, int], Any]) -> list[Any]:
        """Return the partitions to assign, as the library's class."""
        return [kind(self.topic, number) for number in range(self.partitions)]

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

    def __init__(self, consumer: Any, batch: int) -> None:
        self._consumer = consumer
        self._batch = batch

    def poll(self, timeout_ms: int) -> list[bytes]:
        if self._batch > 1:
            messages = self._consumer.consume(self._batch, timeout_ms / 1000)
        else:
            # consume() returns at the end of its timeout if there are fewer records.
            message = self._consumer.poll(timeout_ms / 1000)
            messages = [] if message is None else [message]
        return [message.value() for message in messages if not message.error()]


class _Awaited:
    """Consumer of type ``kohort.AsyncKafkaConsumer`` or ``aiokafka.AIOKafkaConsumer``."""

    def __init__(
        self, consumer: Any, poll: Callable[..., Awaitable[Any]], assigned: list[Any]
    ) -> None:
        self._consumer = consumer
        self._poll = poll
        self._assigned = assigned

    async def start(self) -> None:
        await self._consumer.start()
        if self._assigned:
            self._consumer.assign(self._assigned)

    async def poll(self, timeout_ms: int) -> list[bytes]:
        return _values(await self._poll(timeout_ms=timeout_ms))


def _values(records: Any) -> list[bytes]:
    return [record.value for batch in records.values() for record in batch]


def _kohort(ask: Ask) -> Consumer:
    from kohort import KafkaConsumer, TopicPartition

    return _polled(KafkaConsumer(*ask.topics, **ask.keywords()), ask.assigned(TopicPartition))


def _kafka_python(ask: Ask) -> Consumer:
    from kafka import KafkaConsumer, TopicPartition

    return _polled(KafkaConsumer(*ask.topics, **ask.keywords()), ask.assigned(TopicPartition))


def _polled(consumer: Any, assigned: list[Any]) -> Consumer:
    if assigned:
        consumer.assign(assigned)
    return _Polled(consumer)


def _confluent(ask: Ask) -> Consumer:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition
    from confluent_kafka import Consumer as Confluent

    consumer = Confluent(
        {
            "bootstrap.servers": ask.bootstrap_servers,
            "group.id": ask.group,
            "auto.offset.reset": "earliest",
        }
    )
    if ask.partitions:
        first = partial(TopicPartition, offset=OFFSET_BEGINNING)
        consumer.assign(ask.assigned(first))
    else:
        consumer.subscribe([ask.topic])
    return _Confluent(consumer, ask.batch)


def _kohort_async(ask: Ask) -> AsyncConsumer:
    from kohort import AsyncKafkaConsumer, TopicPartition

    consumer: Any = AsyncKafkaConsumer(*ask.topics, **ask.keywords())
    return _Awaited(consumer, consumer.poll, ask.assigned(TopicPartition))


def _aiokafka(ask: Ask) -> AsyncConsumer:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer: Any = AIOKafkaConsumer(*ask.topics, **ask.keywords())
    return _Awaited(consumer, consumer.getmany, ask.assigned(TopicPartition))


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


CLASSES = {KOHORT: "KafkaConsumer", KOHORT_ASYNC: "AsyncKafkaConsumer"}


def load(client: str) -> None:
    """Import a client with its consumer, which kohort imports on first use."""
    module = import_module(MODULES[client])
    if client in CLASSES:
        getattr(module, CLASSES[client])
