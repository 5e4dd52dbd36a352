"""A number is no listener."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=3)
