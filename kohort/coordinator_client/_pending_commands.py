"""The commands that the membership returns, and the tokens of those in progress."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kohort.coordinator_client._commands import Cancel, Command


class Role(Enum):
    """The purpose of a command in progress. At most one command of each role is in progress."""

    POLL = "poll"
    CALLBACK = "callback"
    JOIN = "join"
    ASSIGN = "assign"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"
    RESOLVE = "resolve"
    DESCRIBE = "describe"


class PendingCommands:
    """The commands of one membership, shared by its parts."""

    def __init__(self) -> None:
        self.now = 0.0
        """Time of the event that the membership handles."""
        self._outbox: list[Command] = []
        self._last_token = 0
        self._tokens: dict[Role, int] = {}

    @property
    def tokens(self) -> Mapping[Role, int]:
        """The tokens of the commands in progress by role."""
        return self._tokens

    def emit(self, command: Command) -> None:
        self._outbox.append(command)

    def take(self) -> list[Command]:
        """Return the commands since the last call."""
        commands, self._outbox = self._outbox, []
        return commands

    def new_token(self) -> int:
        """Return a token of a command without a role, whose response is ignored."""
        self._last_token += 1
        return self._last_token

    def start(self, role: Role) -> int:
        """Return a token for a command of this role. Any earlier token of the role is stale."""
        self._tokens[role] = self.new_token()
        return self._tokens[role]

    def finish(self, token: int) -> Role | None:
        """Return the role of a token and end the wait for it. Return None for a stale token."""
        for role, waiting in self._tokens.items():
            if waiting == token:
                del self._tokens[role]
                return role
        return None

    def waits_for(self, role: Role) -> bool:
        return role in self._tokens

    def forget(self, *roles: Role) -> None:
        """Cancel the commands in progress for these roles, if any."""
        for role in roles:
            token = self._tokens.pop(role, None)
            if token is not None:
                self.emit(Cancel(token))
