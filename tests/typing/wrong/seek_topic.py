"""A topic is no partition."""

from __future__ import annotations

from kohort import KafkaConsumer

consumer = KafkaConsumer("orders")
# expect: mypy arg-type | pyright reportArgumentType
consumer.seek("orders", 7)
