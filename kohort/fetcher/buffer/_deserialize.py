"""Deserialization of keys and values, and the error when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kohort.config import Deserialize
from kohort.errors import RecordDeserializationError
from kohort.records import ConsumerRecord, Record, deserialized, keep_bytes
from kohort.types import TopicPartition

DeserializeRecord: TypeAlias = Callable[[Record], ConsumerRecord[Any, Any]]
"""A function that raises RecordDeserializationError for every exception of a deserializer."""


class KeptBytes:
    """The switch that lets records keep the bytes of key and value, which costs memory."""

    __slots__ = ("turn_on",)

    def __init__(self) -> None:
        self.turn_on: Callable[[], None] = lambda: None


def record_deserializer(
    key: Deserialize | None, value: Deserialize | None, kept_bytes: KeptBytes | None = None
) -> DeserializeRecord | None:
    """Return one function for key and value, or None if there is no deserializer."""
    if key is None and value is None:
        return None
    keeps_bytes = False  # in a cell, which costs each record less than an attribute

    def turn_on() -> None:
        nonlocal keeps_bytes
        keeps_bytes = True

    if kept_bytes is not None:
        kept_bytes.turn_on = turn_on

    def deserialize(record: Record) -> ConsumerRecord[Any, Any]:
        what, raw = "key", record.key
        try:
            new_key = raw if key is None else key(record.topic, record.headers, raw)
            what, raw = "value", record.value
            new_value = raw if value is None else value(record.topic, record.headers, raw)
        except Exception as error:
            raise _failed(what, raw, record, error) from error
        if keeps_bytes:
            return keep_bytes(deserialized(record, new_key, new_value), record)
        return deserialized(record, new_key, new_value)

    return deserialize


def _failed(
    what: str, raw: bytes | None, record: Record, error: Exception
) -> RecordDeserializationError:
    tp = TopicPartition(record.topic, record.partition)
    reason = f"the {what} does not deserialize: {type(error).__name__}: {error}"
    failed = RecordDeserializationError(
        f"the {what} of {tp.topic}-{tp.partition} offset {record.offset} does not deserialize: "
        f"{type(error).__name__}: {error}. No record is skipped, and other partitions continue. "
        f"Each poll tries the record again. To skip it, call seek({tp}, {record.offset + 1}). "
        "The attribute raw of the error has its bytes",
        topic_partition=tp,
        offset=record.offset,
        next_offset=record.offset + 1,
        raw=raw,
        reason=reason,
    )
    failed.key, failed.value = record.key, record.value
    failed.headers, failed.timestamp = record.headers, record.timestamp
    return failed
