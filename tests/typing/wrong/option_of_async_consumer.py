"""An option of AsyncKafkaConsumer is refused by KafkaConsumer."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportCallIssue
KafkaConsumer("orders", rebalance_without_poll="always")
