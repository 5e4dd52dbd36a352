"""The callback of a commit receives offsets and an error or None."""

from __future__ import annotations

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition


def done(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    print(offsets, error)


consumer = KafkaConsumer("orders", group_id="billing", default_offset_commit_callback=done)
future = consumer.commit_async(callback=done)
future.result(timeout=5)
consumer.commit_async({TopicPartition("orders", 0): 7}, lambda offsets, error: print(error))
