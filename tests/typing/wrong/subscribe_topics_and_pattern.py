"""Topics and a pattern exclude each other."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], pattern="o.*")
