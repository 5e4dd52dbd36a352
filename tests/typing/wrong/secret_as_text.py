"""A Secret is revealed to be text."""

from __future__ import annotations

from kohort import Secret

# expect: mypy assignment | pyright reportAssignmentType
password: str = Secret("secret")
