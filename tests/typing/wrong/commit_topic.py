"""The keys of offsets are partitions."""

from __future__ import annotations

from kohort import KafkaConsumer

consumer = KafkaConsumer("orders", group_id="g")
# expect: mypy dict-item | pyright reportArgumentType
consumer.commit({"orders": 7})
