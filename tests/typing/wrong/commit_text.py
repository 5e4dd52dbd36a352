"""An offset is no text."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

consumer = KafkaConsumer("orders", group_id="g")
# expect: mypy dict-item | pyright reportArgumentType
consumer.commit({TopicPartition("orders", 0): "7"})
