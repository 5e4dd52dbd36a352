"""Positions and offsets are numbers by partition."""

from __future__ import annotations

from typing import assert_type

from kohort import KafkaConsumer, OffsetAndTimestamp, TopicPartition

consumer = KafkaConsumer()
partition = TopicPartition("orders", 0)
consumer.assign([partition])
consumer.seek(partition, 7)
consumer.seek(partition, 7, until=70)
consumer.seek_to_beginning()
consumer.seek_to_end(partition)
assert_type(consumer.position(partition), int)
assert_type(consumer.beginning_offsets([partition]), dict[TopicPartition, int])
found = consumer.offsets_for_times({partition: 1_700_000_000_000})
assert_type(found, dict[TopicPartition, OffsetAndTimestamp | None])
