"""The data of a member and the tokens of its commands, without I/O and without a clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kohort.coordinator_client._commands import Cancel, Command
from kohort.coordinator_client._state import MemberState, StateCell
from kohort.transport import Backoff
from kohort.types import TopicPartition

NO_GENERATION = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
HISTORY = 16
"""Number of past rebalances in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The configuration of the membership. Times are in seconds."""

    group_id: str
    protocols: tuple[str, ...]
    """Names of the assignors, in order of preference."""
    cooperative: bool = False
    static: bool = False
    """True with a group_instance_id. A static member keeps its partitions for a whole session."""
    heartbeat_interval: float
    session_timeout: float
    max_poll_interval: float
    backoff: Backoff


class Role(Enum):
    """The purpose of a command in progress. At most one command of each role is in progress."""

    POLL = "poll"
    CALLBACK = "callback"
    JOIN = "join"
    ASSIGN = "assign"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"


class RebalanceRecord(NamedTuple):
    """A completed rebalance."""

    at: float
    """Time of its end."""
    reason: str
    generation: int
    protocol: str
    gained: frozenset[TopicPartition]
    lost: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    seconds: float
    """Duration from the first step inside poll() to the end of the last callback."""
    waited: float
    """Duration of the wait before that, until the caller was inside poll()."""


class MemberData:
    """The data of a membership. :class:`ClassicMembership` changes it."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        self.settings = settings
        self.topics: frozenset[str] | None = None
        """Subscribed topics, or None when unsubscribed."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        """Name of the generation's assignor."""
        self.owned = NO_PARTITIONS
        self.losses = 0
        """Number of times the membership ended.

        After each, others may have owned this member's earlier partitions.
        """
        self.history: deque[RebalanceRecord] = deque(maxlen=HISTORY)
        self.rebalances = 0
        self.rebalance_seconds = self.rebalance_longest = 0.0
        """Times of all rebalances, while the history has the latest ones only."""
        self._cell = StateCell(settings.group_id)
        self._rng = rng
        self._outbox: list[Command] = []
        self._tokens = 0
        self._waiting: dict[Role, int] = {}

    @property
    def state(self) -> MemberState:
        return self._cell.state

    @property
    def outstanding(self) -> Mapping[Role, int]:
        """The tokens of the commands in progress by role."""
        return self._waiting

    @property
    def needs_poll(self) -> bool:
        """True if the next step of the membership waits for the caller to be inside poll()."""
        return Role.POLL in self._waiting

    @property
    def in_generation(self) -> bool:
        """True if this member has a generation and does not know that it has lost it."""
        return self.generation != NO_GENERATION

    def remember(self, record: RebalanceRecord) -> None:
        """Add a completed rebalance to the history and the totals."""
        self.history.append(record)
        self.rebalances += 1
        self.rebalance_seconds += record.seconds
        self.rebalance_longest = max(self.rebalance_longest, record.seconds)

    def move(self, to: MemberState, why: str) -> None:
        """Change the state. Nothing else changes it."""
        self._cell.move(to, why)

    def emit(self, command: Command) -> None:
        self._outbox.append(command)

    def take_commands(self) -> list[Command]:
        commands, self._outbox = self._outbox, []
        return commands

    def new_token(self) -> int:
        """Return a token of a command without a role, whose response is ignored."""
        self._tokens += 1
        return self._tokens

    def start(self, role: Role) -> int:
        """Return a token for a command of this role. Any earlier token of the role is stale."""
        self._waiting[role] = self.new_token()
        return self._waiting[role]

    def finish(self, token: int) -> Role | None:
        """Return the role of a token and end the wait for it. Return None for a stale token."""
        for role, waiting in self._waiting.items():
            if waiting == token:
                del self._waiting[role]
                return role
        return None

    def waits_for(self, role: Role) -> bool:
        return role in self._waiting

    def forget(self, *roles: Role) -> None:
        """Cancel the commands in progress for these roles, if any."""
        for role in roles:
            token = self._waiting.pop(role, None)
            if token is not None:
                self.emit(Cancel(token))

    def backoff(self, attempt: int) -> float:
        """Return the seconds to wait before a retry. ``attempt`` counts from 0."""
        return self.settings.backoff.delay(attempt + 1, self._rng)
