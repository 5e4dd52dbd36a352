"""An option of another client is refused."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer

# expect: mypy call-overload | pyright reportCallIssue
AsyncKafkaConsumer("orders", api_version="auto")
