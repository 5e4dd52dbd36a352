"""What a member knows of itself, and the bookkeeping of its commands. No I/O, no clock."""

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
"""How many past rebalances are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The part of the configuration that the machine goes by. Times in seconds."""

    group_id: str
    protocols: tuple[str, ...]
    """Names of the assignors, in order of preference."""
    cooperative: bool = False
    static: bool = False
    """There is a group_instance_id: the member is not missed until its session expires."""
    heartbeat_interval: float
    session_timeout: float
    max_poll_interval: float
    backoff: Backoff


class Role(Enum):
    """What a command in progress is for; there is one of each at most."""

    POLL = "poll"
    CALLBACK = "callback"
    JOIN = "join"
    ASSIGN = "assign"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"
    LEAVE = "leave"


class RebalanceRecord(NamedTuple):
    """One completed rebalance."""

    at: float
    """Time of its end."""
    reason: str
    generation: int
    protocol: str
    gained: frozenset[TopicPartition]
    lost: frozenset[TopicPartition]
    assignment: frozenset[TopicPartition]
    seconds: float
    """From the first step inside poll() to the end of the last callback."""
    waited: float
    """Before that: until the caller was inside poll()."""


class MemberData:
    """The data of a membership; :class:`ClassicMembership` is what happens to it."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        self.settings = settings
        self.topics: frozenset[str] | None = None
        """Subscribed topics; None when unsubscribed."""
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        """Name of the generation's assignor."""
        self.owned = NO_PARTITIONS
        self.losses = 0
        """How often the membership ended: what was owned before may have been others' since."""
        self.history: deque[RebalanceRecord] = deque(maxlen=HISTORY)
        self.rebalances = 0
        self.rebalance_seconds = self.rebalance_longest = 0.0
        """Of all rebalances, where the history has the latest only."""
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
        """What is in progress: role -> token."""
        return self._waiting

    @property
    def needs_poll(self) -> bool:
        """The next step of the membership waits for the caller to be inside poll()."""
        return Role.POLL in self._waiting

    @property
    def in_generation(self) -> bool:
        """The coordinator counts this member into a generation, as far as is known."""
        return self.generation != NO_GENERATION

    def remember(self, record: RebalanceRecord) -> None:
        """A rebalance is complete."""
        self.history.append(record)
        self.rebalances += 1
        self.rebalance_seconds += record.seconds
        self.rebalance_longest = max(self.rebalance_longest, record.seconds)

    def move(self, to: MemberState, why: str) -> None:
        """The one way to change the state."""
        self._cell.move(to, why)

    def emit(self, command: Command) -> None:
        self._outbox.append(command)

    def take_commands(self) -> list[Command]:
        commands, self._outbox = self._outbox, []
        return commands

    def new_token(self) -> int:
        """A token that no answer is waited for under."""
        self._tokens += 1
        return self._tokens

    def start(self, role: Role) -> int:
        """A token for a command whose answer is waited for; any earlier of its role is stale."""
        self._waiting[role] = self.new_token()
        return self._waiting[role]

    def finish(self, token: int) -> Role | None:
        """What the token was for; None if nobody waits for it any more."""
        for role, waiting in self._waiting.items():
            if waiting == token:
                del self._waiting[role]
                return role
        return None

    def waits_for(self, role: Role) -> bool:
        return role in self._waiting

    def forget(self, *roles: Role) -> None:
        """Take back the commands in progress for these roles, if any."""
        for role in roles:
            token = self._waiting.pop(role, None)
            if token is not None:
                self.emit(Cancel(token))

    def backoff(self, attempt: int) -> float:
        """Seconds to wait before a retry; ``attempt`` counts from 0."""
        return self.settings.backoff.delay(attempt + 1, self._rng)
