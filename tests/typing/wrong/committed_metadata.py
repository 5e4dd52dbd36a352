"""Without metadata there is a number."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

at = KafkaConsumer(group_id="g").committed(TopicPartition("orders", 0))
if at is not None:
    # expect: mypy attr-defined | pyright reportAttributeAccessIssue
    print(at.metadata)
