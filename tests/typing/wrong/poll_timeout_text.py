"""A timeout is a number."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy arg-type | pyright reportArgumentType
KafkaConsumer("orders").poll(timeout_ms="1000")
