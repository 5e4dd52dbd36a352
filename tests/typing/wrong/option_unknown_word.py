"""Only the words of an option are accepted."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer("orders", isolation_level="committed")
