"""The function that calls listeners is private."""

from __future__ import annotations

# expect: mypy attr-defined | pyright reportAttributeAccessIssue
from kohort.listeners import call_listener

print(call_listener)
