"""An option of KafkaConsumer is refused by AsyncKafkaConsumer."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer

# expect: mypy call-overload | pyright reportCallIssue
AsyncKafkaConsumer("orders", consumer_timeout_ms=1_000)
