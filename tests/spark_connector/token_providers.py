"""Token providers as users write them, named by an option."""

from __future__ import annotations

from kohort.testing import unsecured_token


class Alice:
    """A provider whose method is a coroutine."""

    async def token(self) -> str:
        return unsecured_token("alice")


alice = Alice()
NOTHING = 5


def token() -> str:
    """Return a token."""
    return unsecured_token("alice")


class Choosy:
    """A provider that needs an argument."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
