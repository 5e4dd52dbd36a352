"""Text is no flag."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer("orders", enable_auto_commit="false")
