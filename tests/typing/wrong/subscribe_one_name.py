"""One name is no collection of names."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe("orders")
