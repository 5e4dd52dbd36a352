"""The constructor takes topics one by one."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(["orders"])
