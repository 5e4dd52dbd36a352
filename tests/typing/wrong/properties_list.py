"""Properties are a mapping."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer.from_properties(["group.id=billing"], "orders")
