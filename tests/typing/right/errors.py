"""Errors have typed attributes."""

from __future__ import annotations

from typing import assert_type

from kohort import (
    CorruptBatchError,
    KafkaConsumer,
    KafkaError,
    RecordDeserializationError,
    TopicPartition,
)

consumer = KafkaConsumer("orders", value_deserializer=int)
try:
    consumer.poll()
except RecordDeserializationError as error:
    assert_type(error.topic_partition, TopicPartition | None)
    assert_type(error.key, bytes | None)
    assert_type(error.headers, tuple[tuple[str, bytes | None], ...])
    if error.topic_partition is not None and error.next_offset is not None:
        consumer.seek(error.topic_partition, error.next_offset)
except (CorruptBatchError, KafkaError):
    consumer.close()
