"""The users of a cluster have passwords."""

from __future__ import annotations

from kohort.testing import Security

# expect: mypy arg-type | pyright reportArgumentType
Security(users=["user"])
