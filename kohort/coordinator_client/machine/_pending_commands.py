"""The commands that a membership returns, the tokens of those in progress, and steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from enum import Enum
from typing import NoReturn, TypeVar

from kohort.coordinator_client.machine._commands import Cancel, Command
from kohort.coordinator_client.machine._events import Event
from kohort.types import NamedTuple

T = TypeVar("T")
RebalanceSteps = Generator[float | None, Event | None, T]
"""Steps of a rebalance. Each yields None to wait for an event, or the time of a retry."""


class RebalanceStart(NamedTuple):
    """The start of a rebalance, or its restart."""

    reason: str
    needs_poll: bool = True
    """False for a restart. It waits for poll() only if a callback must precede JoinGroup."""
    refreshes_topics: bool = True
    """False if new metadata led to this rebalance. A refresh happens only before the wait for
    poll(), and only for a pattern."""
    pauses: bool = False
    """True for a restart that always pauses before JoinGroup. Others pause from the second on."""


class Restarted(Exception):
    """An interruption of the rebalance, which then starts again."""

    def __init__(self, start: RebalanceStart) -> None:
        super().__init__(start.reason)
        self.start = start


def restart(reason: str, *, pauses: bool = False) -> NoReturn:
    """Raise Restarted, which waits for poll() only if a callback must precede JoinGroup."""
    raise Restarted(RebalanceStart(reason, needs_poll=False, pauses=pauses))


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
    """The commands of one membership, shared by its parts.

    ``tokens`` gives numbers that no other membership of the consumer has. So a membership ignores
    the events of commands that are of a former one.
    """

    def __init__(self, tokens: Iterator[int]) -> None:
        self.now = 0.0
        """Time of the event that the membership handles."""
        self._outbox: list[Command] = []
        self._new_tokens = tokens
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
        return next(self._new_tokens)

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
