"""A function decides what follows bad data."""

from __future__ import annotations

from kohort import KafkaConsumer
from kohort.errors import DataError, RecordDeserializationError


def on_error(error: DataError) -> str:
    return "skip" if isinstance(error, RecordDeserializationError) else "pause"


KafkaConsumer("orders", value_deserializer=int, on_error=on_error)
KafkaConsumer("orders", on_error="skip")
