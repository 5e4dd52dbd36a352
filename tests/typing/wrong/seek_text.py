"""A position is no text."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

consumer = KafkaConsumer("orders")
# expect: mypy arg-type | pyright reportArgumentType
consumer.seek(TopicPartition("orders", 0), "7")
