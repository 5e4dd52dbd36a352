"""Offsets to commit are numbers, or numbers with metadata."""

from __future__ import annotations

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition

consumer = KafkaConsumer("orders", group_id="billing")
partition = TopicPartition("orders", 0)
consumer.commit()
consumer.commit({partition: 7})
consumer.commit({partition: OffsetAndMetadata(7, "by hand")}, timeout_ms=500)
consumer.commit({partition: (7, "by hand")})
consumer.commit(consumer.positions())
