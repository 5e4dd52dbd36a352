"""Records, offsets and deserializers in kafka-python's shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kohort import ConsumerRecord as NativeRecord
from kohort import TopicPartition as NativePartition
from kohort.compat._peer import peer_name
from kohort.compat.kafka_python.structs import OffsetAndMetadata, TopicPartition


class ConsumerRecord(NamedTuple):
    """Record as a named tuple of 13 fields; ``headers`` is a list."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class Serializer(ABC):
    """Base class of serializers for ``KafkaProducer``."""

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes]], data: Any) -> bytes | None:
        """Return the bytes of a key or value."""

    def close(self) -> None:  # noqa: B027
        """Release what the serializer holds."""


class Deserializer(ABC):
    """Base class of deserializers for ``KafkaConsumer``."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes]], data: bytes | None) -> Any:
        """Return the key or value that the bytes stand for."""

    def close(self) -> None:  # noqa: B027
        """Release what the deserializer holds."""


if not TYPE_CHECKING:
    ConsumerRecord = peer_name("kafka.consumer.fetcher", "ConsumerRecord") or ConsumerRecord
    Serializer = peer_name("kafka.serializer", "Serializer") or Serializer
    Deserializer = peer_name("kafka.serializer", "Deserializer") or Deserializer


class ListHeaders:
    """A deserializer that is called as kafka-python calls one: with a list of headers."""

    def __init__(self, deserializer: Any) -> None:
        self.deserializer: Any = deserializer
        method = getattr(deserializer, "deserialize", None)
        self._call: Callable[[str, list[Any], bytes | None], Any] = method or self._call_plain

    def _call_plain(self, topic: str, headers: list[Any], data: bytes | None) -> Any:
        return self.deserializer(data)

    def deserialize(self, topic: str, headers: Iterable[Any], data: bytes | None) -> Any:
        """Return the key or value; ``data`` may be None."""
        return self._call(topic, list(headers), data)

    def close(self) -> None:
        """Close the deserializer if it can be closed."""
        close = getattr(self.deserializer, "close", None)
        if callable(close):
            close()


class RecordConverter:
    """Conversion of kohort's records for one consumer."""

    def __init__(self, key: ListHeaders | None, value: ListHeaders | None) -> None:
        self._key = key
        self._value = value

    def to_record(self, record: NativeRecord[Any, Any]) -> ConsumerRecord:
        """Return the record as kafka-python's tuple.

        kohort calls no deserializer for None, and kafka-python does. It is called here.
        """
        headers = list(record.headers)
        key, value = record.key, record.value
        if self._key is not None and record.serialized_key_size < 0:
            key = self._key.deserialize(record.topic, headers, None)
        if self._value is not None and record.serialized_value_size < 0:
            value = self._value.deserialize(record.topic, headers, None)
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.leader_epoch,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            headers,
            record.checksum,
            record.serialized_key_size,
            record.serialized_value_size,
            record.serialized_header_size,
        )


def to_partitions(partitions: Iterable[NativePartition]) -> set[TopicPartition]:
    """Return the partitions as kafka-python's."""
    return {TopicPartition(*each) for each in partitions}


def is_partition(value: object) -> bool:
    """True if the value is a TopicPartition of kafka-python or of kohort."""
    return isinstance(value, (TopicPartition, NativePartition))


def commit_offsets(offsets: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return offsets to commit with their metadata as text, which kafka-python sends by ``str()``.

    Raises TypeError where kafka-python does. Plain offsets are accepted as well.
    """
    found: dict[Any, Any] = {}
    for tp, value in offsets.items():
        if isinstance(value, int):
            value = OffsetAndMetadata(value, "", -1)
        if not is_partition(tp) or not isinstance(value, tuple) or len(value) != 3:
            raise TypeError("offsets must be dict[TopicPartition, OffsetAndMetadata]")
        offset, metadata, epoch = value
        found[tp] = (offset, "" if metadata is None else str(metadata), epoch)
    return found
