"""poll() returns records by partition."""

from __future__ import annotations

from kohort import ConsumerRecord, KafkaConsumer

# expect: mypy assignment | pyright reportAssignmentType
records: list[ConsumerRecord[bytes, bytes]] = KafkaConsumer("orders").poll()
