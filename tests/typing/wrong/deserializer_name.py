"""A name is no deserializer."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType,reportCallIssue
KafkaConsumer("orders", key_deserializer="utf-8")
