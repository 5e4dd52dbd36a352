"""A dictionary of options has no other keys."""

from __future__ import annotations

from kohort import ConsumerOptions

# expect: mypy typeddict-unknown-key | pyright reportAssignmentType
options: ConsumerOptions = {"groupid": "billing"}
