"""Options of one consumer are no options of the other."""

from __future__ import annotations

from kohort import AsyncConsumerOptions, ConsumerOptions

options: ConsumerOptions = {"consumer_timeout_ms": 1_000}
# expect: mypy assignment | pyright reportAssignmentType
other: AsyncConsumerOptions = options
