"""The topic comes before the partition."""

from __future__ import annotations

from kohort import TopicPartition

# expect: mypy arg-type | pyright reportArgumentType
TopicPartition(0, "orders")
