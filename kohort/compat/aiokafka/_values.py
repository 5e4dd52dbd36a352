"""Conversion of records, partitions and offsets between kohort and aiokafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kohort import ConsumerRecord as NativeRecord
from kohort import TopicPartition as NativePartition
from kohort.compat.aiokafka.structs import ConsumerRecord, TopicPartition

AioDeserializer = Callable[[bytes | None], Any]


class AioRecordConverter:
    """Conversion of kohort's records for one consumer."""

    def __init__(self, key: AioDeserializer | None, value: AioDeserializer | None) -> None:
        self._key = key
        self._value = value

    def to_record(self, record: NativeRecord[Any, Any]) -> ConsumerRecord[Any, Any]:
        """Return the record as aiokafka's dataclass.

        kohort calls no deserializer for None, and aiokafka does. It is called here.
        """
        key, value = record.key, record.value
        if self._key is not None and record.serialized_key_size < 0:
            key = self._key(None)
        if self._value is not None and record.serialized_value_size < 0:
            value = self._value(None)
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            record.checksum,
            record.serialized_key_size,
            record.serialized_value_size,
            tuple(record.headers),  # type: ignore[arg-type]
        )


def to_partitions(partitions: Iterable[tuple[str, int]]) -> frozenset[TopicPartition]:
    """Return the partitions as aiokafka's."""
    return frozenset(TopicPartition(*each) for each in partitions)


def to_native(partitions: Iterable[tuple[str, int]]) -> list[NativePartition]:
    """Return the partitions as kohort's."""
    return [NativePartition(*each) for each in partitions]


def is_partition(value: object) -> bool:
    """Return True if the value is a TopicPartition of aiokafka or of kohort."""
    return isinstance(value, (TopicPartition, NativePartition))


def all_partitions(values: Iterable[object]) -> bool:
    """Return True if all values are a TopicPartition of aiokafka or of kohort."""
    return all(map(is_partition, values))


def offsets_to_commit(offsets: Any) -> dict[NativePartition, tuple[int, str]]:
    """Return offsets that a program commits. Raise the errors that aiokafka raises.

    Each value is an offset, or an offset and its metadata.
    """
    if not offsets or not isinstance(offsets, Mapping):
        raise ValueError(offsets)
    found: dict[NativePartition, tuple[int, str]] = {}
    for tp, value in offsets.items():
        if not is_partition(tp):
            raise TypeError("Key should be TopicPartition instance")
        if isinstance(value, int):
            offset, metadata = value, ""
        else:
            try:
                offset, metadata = value
            except (TypeError, ValueError):
                raise ValueError(offsets) from None
            if not isinstance(metadata, str):
                raise TypeError("Metadata should be a string")
        found[NativePartition(*tp)] = (offset, metadata)
    return found
