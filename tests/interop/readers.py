"""One interface for other functions of third-party consumers: topic discovery, seek, commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import aiokafka
import kafka
from confluent_kafka import Consumer, TopicPartition

from tests.interop.brokers import TIMEOUT_S
from tests.interop.peers import HEARTBEAT_MS

POLL_S = 0.2
AGE_MS = 300  # time-out of metadata, which limits how soon a new topic is found


class Reader(Protocol):
    """Consumer that is called from one thread. Commits are for partition 0 of a topic."""

    def match(self, expression: str) -> None:
        """Subscribe to all topics whose names begin with the expression."""

    def seek_to_time(self, topic: str, moment_ms: int, partition: int = 0) -> int:
        """Assign the partition, seek to the first offset at a time or later, and
        return the offset.
        """

    def read(self) -> list[bytes]:
        """Poll for a moment and return the values."""

    def commit(self, topic: str, offset: int, metadata: str) -> None: ...

    def committed(self, topic: str) -> tuple[int, str]: ...

    def close(self) -> None: ...


class Confluent:
    """Reader of confluent-kafka."""

    def __init__(self, servers: str, group: str, isolation: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "topic.metadata.refresh.interval.ms": AGE_MS,
                "log_level": 0,
            }
        )

    def match(self, expression: str) -> None:
        self._consumer.subscribe([f"^{expression}"])

    def seek_to_time(self, topic: str, moment_ms: int, partition: int = 0) -> int:
        asked = [TopicPartition(topic, partition, moment_ms)]
        (found,) = self._consumer.offsets_for_times(asked, TIMEOUT_S)
        self._consumer.assign([found])
        return found.offset

    def read(self) -> list[bytes]:
        messages = self._consumer.consume(100, POLL_S)
        assert [m.error() for m in messages if m.error() is not None] == []
        return [value for m in messages if isinstance(value := m.value(), bytes)]

    def commit(self, topic: str, offset: int, metadata: str) -> None:
        place = TopicPartition(topic, 0, offset, metadata)
        self._consumer.commit(offsets=[place], asynchronous=False)

    def committed(self, topic: str) -> tuple[int, str]:
        (found,) = self._consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        return found.offset, found.metadata or ""

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """Reader of kafka-python."""

    def __init__(self, servers: str, group: str, isolation: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=AGE_MS,
        )

    def match(self, expression: str) -> None:
        self._consumer.subscribe(pattern=f"^{expression}")

    def seek_to_time(self, topic: str, moment_ms: int, partition: int = 0) -> int:
        place = kafka.TopicPartition(topic, partition)
        self._consumer.assign([place])
        found = self._consumer.offsets_for_times({place: moment_ms})[place]
        self._consumer.seek(place, found.offset)
        return int(found.offset)

    def read(self) -> list[bytes]:
        # Not shorter, for the reason given at the peer of that name.
        fetched = self._consumer.poll(timeout_ms=1500)
        return [record.value for records in fetched.values() for record in records]

    def commit(self, topic: str, offset: int, metadata: str) -> None:
        what = kafka.OffsetAndMetadata(offset, metadata, -1)
        self._consumer.commit({kafka.TopicPartition(topic, 0): what})

    def committed(self, topic: str) -> tuple[int, str]:
        found = self._consumer.committed(kafka.TopicPartition(topic, 0), metadata=True)
        return found.offset, found.metadata

    def close(self) -> None:
        self._consumer.close()


class AioKafka:
    """Reader of aiokafka, in an event loop that runs while it is called."""

    def __init__(self, servers: str, group: str, isolation: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer: Any = self._runner.run(self._start(servers, group, isolation))

    @staticmethod
    async def _start(servers: str, group: str, isolation: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=AGE_MS,
        )
        await consumer.start()
        return consumer

    def match(self, expression: str) -> None:
        async def subscribe() -> None:
            self._consumer.subscribe(pattern=f"^{expression}")

        self._runner.run(subscribe())

    def seek_to_time(self, topic: str, moment_ms: int, partition: int = 0) -> int:
        place = aiokafka.TopicPartition(topic, partition)

        async def seek() -> int:
            self._consumer.assign([place])
            found = (await self._consumer.offsets_for_times({place: moment_ms}))[place]
            self._consumer.seek(place, found.offset)
            return int(found.offset)

        return self._runner.run(seek())

    def read(self) -> list[bytes]:
        fetched = self._runner.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [record.value for records in fetched.values() for record in records]

    def commit(self, topic: str, offset: int, metadata: str) -> None:
        place = aiokafka.TopicPartition(topic, 0)
        self._runner.run(self._consumer.commit({place: (offset, metadata)}))

    def committed(self, topic: str) -> tuple[int, str]:
        """Return the committed offset without metadata, which aiokafka does not return."""
        place = aiokafka.TopicPartition(topic, 0)
        return self._runner.run(self._consumer.committed(place)), ""

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


Open = Callable[[str, str, str], Reader]
"""Function of bootstrap servers, group and isolation level that returns a reader."""

READERS: dict[str, Open] = {
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}
