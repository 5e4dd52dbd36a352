"""``committed`` returns what its arguments ask for."""

from __future__ import annotations

from typing import assert_type

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition

consumer = KafkaConsumer("orders", group_id="billing")
one = TopicPartition("orders", 0)
assert_type(consumer.committed(one), int | None)
assert_type(consumer.committed(one, metadata=True), OffsetAndMetadata | None)
assert_type(consumer.committed([one]), dict[TopicPartition, int | None])
assert_type(consumer.committed({one}, True), dict[TopicPartition, OffsetAndMetadata | None])
