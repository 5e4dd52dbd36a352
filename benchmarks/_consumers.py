"""Ways to read with five libraries, with one interface.

A consumer has its library's default options. The libraries are imported where they are used,
because a measured process has one of them only.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

WAIT_MS = 1000
CA_VARIABLE = "BENCHMARK_SSL_CAFILE"
"""Environment variable with the path of a CA. If it is set, clients connect by TLS."""

KOHORT, KOHORT_ASYNC = "kohort", "kohort async"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = "confluent-kafka", "aiokafka", "kafka-python"
CLIENTS = (KOHORT, KOHORT_ASYNC, CONFLUENT, AIOKAFKA, KAFKA_PYTHON)
OURS = (KOHORT, KOHORT_ASYNC)
ITERATION, ARROW, ASYNC_FOR = "kohort iteration", "kohort poll_arrow()", "kohort async for"
CONSUME, AIOKAFKA_FOR = "confluent-kafka consume(500)", "aiokafka async for"


class Ask(NamedTuple):
    """Topic to read, in a group with this consumer as its only member."""

    bootstrap_servers: str
    topic: str
    group: str
    partitions: int = 0
    """Number of partitions to assign. 0 subscribes to the topic."""
    reset: str = "earliest"

    def keywords(self) -> dict[str, Any]:
        """Return the options of kohort and kafka-python."""
        security = {"security_protocol": "SSL", "ssl_cafile": ca} if (ca := cafile()) else {}
        return {
            **security,
            "bootstrap_servers": self.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": self.reset,
        }


def cafile() -> str | None:
    """Return the CA of this process's connections. None means plaintext."""
    return os.environ.get(CA_VARIABLE)


class Way(NamedTuple):
    """Way to read with a consumer of a library.

    ``poll`` takes the consumer and milliseconds. ``batches`` has the records of what it returns,
    and ``values`` the values of a batch.
    """

    module: str
    consumer: str
    poll: Callable[[Any, int], Any]
    batches: Callable[[Any], Iterable[Any]]
    values: Callable[[Any], Sequence[bytes]]
    is_async: bool = False

    def load(self) -> None:
        """Import the consumer, which kohort imports on first use."""
        getattr(import_module(self.module), self.consumer)

    def open(self, ask: Ask, **more: Any) -> Any:
        """Return a consumer. An asynchronous one is neither started nor assigned."""
        if self.module == "confluent_kafka":
            return _confluent(ask, **more)
        keywords = ask.keywords() | more
        if self.module == "aiokafka" and (ca := keywords.pop("ssl_cafile", None)):
            keywords["ssl_context"] = ssl.create_default_context(cafile=ca)
        topics = () if ask.partitions else (ask.topic,)
        consumer = getattr(import_module(self.module), self.consumer)(*topics, **keywords)
        if not self.is_async:
            self._assign(consumer, ask)
        return consumer

    async def start(self, ask: Ask) -> Any:
        """Return a consumer that is started and assigned."""
        consumer = self.open(ask)
        await consumer.start()
        self._assign(consumer, ask)
        return consumer

    def _assign(self, consumer: Any, ask: Ask) -> None:
        kind = import_module(self.module).TopicPartition
        if ask.partitions:
            consumer.assign([kind(ask.topic, number) for number in range(ask.partitions)])

    def all_values(self, polled: Any) -> Sequence[bytes]:
        """Return the values of all records of one call."""
        found = [self.values(batch) for batch in self.batches(polled)]
        return found[0] if len(found) == 1 else [value for each in found for value in each]


def _confluent(ask: Ask, **more: Any) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": ask.bootstrap_servers,
            "group.id": ask.group,
            "auto.offset.reset": ask.reset,
            **({"security.protocol": "ssl", "ssl.ca.location": ca} if (ca := cafile()) else {}),
            **more,
        }
    )
    if ask.partitions:
        first = partial(TopicPartition, ask.topic, offset=OFFSET_BEGINNING)
        consumer.assign([first(number) for number in range(ask.partitions)])
    else:
        consumer.subscribe([ask.topic])
    return consumer


def _poll(consumer: Any, timeout_ms: int) -> Any:
    return consumer.poll(timeout_ms=timeout_ms)


def _poll_confluent(consumer: Any, timeout_ms: int) -> Any:
    # consume() returns at the end of its timeout if there are fewer records.
    message = consumer.poll(timeout_ms / 1000)
    return () if message is None else (message,)


def _of_partitions(polled: dict[Any, list[Any]]) -> Iterable[Any]:
    return polled.values()


def _single(record: Any) -> Iterable[Any]:
    return ([record],)


def _whole(polled: Any) -> Iterable[Any]:
    return (polled,) if len(polled) else ()


def _values(records: Any) -> list[bytes]:
    return [record.value for record in records]


def _of_messages(messages: Any) -> list[bytes]:
    return [message.value() for message in messages if not message.error()]


_SYNC, _ASYNC = ("kohort", "KafkaConsumer"), ("kohort", "AsyncKafkaConsumer")
_AIOKAFKA, _CONFLUENT = ("aiokafka", "AIOKafkaConsumer"), ("confluent_kafka", "Consumer")
WAYS = {
    KOHORT: Way(*_SYNC, _poll, _of_partitions, _values),
    ITERATION: Way(*_SYNC, lambda consumer, _: next(consumer), _single, _values),
    ARROW: Way(
        *_SYNC,
        lambda consumer, timeout_ms: consumer.poll_arrow(timeout_ms=timeout_ms),
        _whole,
        lambda table: table.column("value"),
    ),
    KOHORT_ASYNC: Way(*_ASYNC, _poll, _of_partitions, _values, True),
    ASYNC_FOR: Way(*_ASYNC, lambda consumer, _: anext(consumer), _single, _values, True),
    CONFLUENT: Way(*_CONFLUENT, _poll_confluent, _whole, _of_messages),
    CONSUME: Way(*_CONFLUENT, lambda consumer, _: consumer.consume(500, 0.1), _whole, _of_messages),
    AIOKAFKA: Way(
        *_AIOKAFKA,
        lambda consumer, timeout_ms: consumer.getmany(timeout_ms=timeout_ms),
        _of_partitions,
        _values,
        True,
    ),
    AIOKAFKA_FOR: Way(*_AIOKAFKA, lambda consumer, _: anext(consumer), _single, _values, True),
    KAFKA_PYTHON: Way("kafka", "KafkaConsumer", _poll, _of_partitions, _values),
}
