"""A misspelt option is refused."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportCallIssue
KafkaConsumer("orders", groupid="billing")
