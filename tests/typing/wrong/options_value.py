"""A dictionary of options has values of their types."""

from __future__ import annotations

from kohort import ConsumerOptions

# expect: mypy typeddict-item | pyright reportAssignmentType
options: ConsumerOptions = {"max_poll_records": "10"}
