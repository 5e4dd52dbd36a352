"""A subscription needs topics or a pattern."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer

# expect: mypy call-overload | pyright reportCallIssue
AsyncKafkaConsumer(group_id="g").subscribe()
