"""Offsets to commit are a mapping."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

consumer = KafkaConsumer("orders", group_id="g")
# expect: mypy arg-type | pyright reportArgumentType
consumer.commit([TopicPartition("orders", 0)])
