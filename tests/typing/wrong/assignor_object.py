"""An assignor assigns."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy list-item | pyright reportArgumentType
KafkaConsumer(group_id="g", partition_assignment_strategy=[object()])
