"""Keys and values from bytes to the user's objects, and what is raised when that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kohort.config import Deserialize
from kohort.errors import RecordDeserializationError
from kohort.records import ConsumerRecord, Record, deserialized
from kohort.types import TopicPartition

DeserializeRecord: TypeAlias = Callable[[Record], ConsumerRecord[Any, Any]]
"""Raises RecordDeserializationError, whatever the user's code raises."""


def record_deserializer(
    key: Deserialize | None, value: Deserialize | None
) -> DeserializeRecord | None:
    """One function for both; None where the bytes are what is wanted."""
    if key is None and value is None:
        return None

    def deserialize(record: Record) -> ConsumerRecord[Any, Any]:
        what, raw = "key", record.key
        try:
            new_key = raw if key is None else key(record.topic, record.headers, raw)
            what, raw = "value", record.value
            new_value = raw if value is None else value(record.topic, record.headers, raw)
        except Exception as error:
            raise _failed(what, raw, record, error) from error
        return deserialized(record, new_key, new_value)

    return deserialize


def _failed(
    what: str, raw: bytes | None, record: Record, error: Exception
) -> RecordDeserializationError:
    tp = TopicPartition(record.topic, record.partition)
    reason = f"the {what} does not deserialize: {type(error).__name__}: {error}"
    return RecordDeserializationError(
        f"the {what} of {tp.topic}-{tp.partition} offset {record.offset} does not deserialize: "
        f"{type(error).__name__}: {error}. Nothing is skipped and the other partitions go on; the "
        f"record is tried again at each poll. To pass over it: "
        f"seek({tp}, {record.offset + 1}), and the error's raw has its bytes",
        topic_partition=tp,
        offset=record.offset,
        next_offset=record.offset + 1,
        raw=raw,
        reason=reason,
    )
