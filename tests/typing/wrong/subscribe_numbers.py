"""Topics have names."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy list-item | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe([1, 2])
