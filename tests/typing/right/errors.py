"""Errors have typed attributes, which are optional only where they may be unknown."""

from __future__ import annotations

from typing import assert_type

from kohort import (
    CorruptBatchError,
    KafkaConsumer,
    KafkaError,
    RecordDeserializationError,
    TopicPartition,
)
from kohort.errors import (
    DataError,
    LogTruncationError,
    NoOffsetForPartitionError,
    RecordTooLargeError,
    TopicRecreatedError,
)

consumer = KafkaConsumer("orders", value_deserializer=int)
try:
    consumer.poll()
except RecordDeserializationError as error:
    assert_type(error.topic_partition, TopicPartition)
    assert_type(error.offset, int)
    assert_type(error.key, bytes | None)
    assert_type(error.headers, tuple[tuple[str, bytes | None], ...])
    consumer.seek(error.topic_partition, error.next_offset)
except LogTruncationError as error:
    assert_type(error.offset, int)
    consumer.seek(error.topic_partition, error.diverging_offset)
except (CorruptBatchError, RecordTooLargeError) as error:
    assert_type(error.topic_partition, TopicPartition)
    assert_type(error.offset, int)
    assert_type(error.next_offset, int | None)
except (NoOffsetForPartitionError, TopicRecreatedError) as error:
    assert_type(error.offset, int | None)
    consumer.seek(error.topic_partition, 0)
except DataError as error:
    assert_type(error.topic_partition, TopicPartition)
    assert_type(error.raw, bytes | None)
except KafkaError:
    consumer.close()
