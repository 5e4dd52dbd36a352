"""The partitions to assign are a collection."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

# expect: mypy arg-type | pyright reportArgumentType
KafkaConsumer().assign(TopicPartition("orders", 0))
