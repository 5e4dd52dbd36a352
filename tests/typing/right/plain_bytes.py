"""Keys and values are bytes without a deserializer."""

from __future__ import annotations

from typing import assert_type

from kohort import ConsumerRecord, KafkaConsumer, TopicPartition

consumer = KafkaConsumer("orders", bootstrap_servers="localhost:9092", group_id="billing")
assert_type(consumer, KafkaConsumer[bytes, bytes])
assert_type(consumer.poll(), dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]])
