"""The membership in a share group (KIP-932), as a state machine without I/O and clock.

Theory of operation. A member of a share group owns nothing. Its assignment is advice: which
leaders it asks for records. So there is no revocation, no acknowledgement of a target and no
listener. ``handle(event, now)`` returns commands, and ``next_deadline()`` is the time of the next
:class:`Tick`. The member chooses its id once and keeps it for life, also when the coordinator has
forgotten it. Its locks belong to the leaders, and survive a new join.

A heartbeat names the topics when it joins, and when they changed. The partitions of a new topic
are assigned only after the coordinator has prepared them, which follows its first response. So a
member without partitions sends follow-up heartbeats at growing pauses.

Invariants:

1. At most one heartbeat is in flight, except the one that leaves.
2. A heartbeat names the topics if its epoch is 0, or if the coordinator has not accepted the
   current ones yet.
3. The epoch is 0 before a join and after the coordinator has removed the member. Otherwise it is
   that of the latest response without an error.
4. After a loss of the membership the assignment is empty until the next response has one.
5. A failed member sends nothing until :class:`Retry` or other topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kohort.coordinator_client.machine._error_code_actions import CoordinatorAction, action_for
from kohort.protocol import ApiKey
from kohort.types import NamedTuple

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
FIRST_INTERVAL: Final = 5.0
"""Seconds between heartbeats until a response has the interval of the broker."""
MIN_INTERVAL: Final = 0.1
FOLLOW_UP: Final = 0.05
"""Seconds from a response without partitions to the next heartbeat. Each further one doubles."""
FOLLOW_UP_SHARE: Final = 0.2
"""Longest pause between follow-up heartbeats, as a share of the interval."""

IdPartition: TypeAlias = tuple[bytes, int]
"""A topic id and a partition number."""


class Subscribe(NamedTuple):
    """The topics to read. No topics end the membership."""

    topics: frozenset[str]


class Tick(NamedTuple):
    """The time of :meth:`ShareMembership.next_deadline` has come."""


class Answered(NamedTuple):
    """A response to a heartbeat."""

    code: int
    epoch: int
    interval: float
    assignment: frozenset[IdPartition] | None
    """None if it is unchanged."""
    message: str | None = None


class Unanswered(NamedTuple):
    """A heartbeat got no response."""


class Retry(NamedTuple):
    """The caller polls again after a failure."""


MemberEvent: TypeAlias = Subscribe | Tick | Answered | Unanswered | Retry


class SendHeartbeat(NamedTuple):
    """Send a heartbeat. :class:`Answered` or :class:`Unanswered` follows."""

    epoch: int
    topics: frozenset[str] | None
    """None if the coordinator has them."""


class SendLeave(NamedTuple):
    """Send the heartbeat that leaves. Nothing needs to follow."""


class Assign(NamedTuple):
    """Fetch from these partitions from now on."""

    partitions: frozenset[IdPartition]


class DropCoordinator(NamedTuple):
    """Look the coordinator up before the next heartbeat."""


class Fail(NamedTuple):
    """Raise an error in the next poll."""

    code: int
    message: str | None


MemberCommand: TypeAlias = SendHeartbeat | SendLeave | Assign | DropCoordinator | Fail


class ShareMembership:
    """The membership of one share consumer. ``backoff(failures)`` returns seconds."""

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self.topics: frozenset[str] = frozenset()
        self.epoch: int = JOIN_EPOCH
        self.assignment: frozenset[IdPartition] = frozenset()
        self.has_failed: bool = False
        self.interval: float = FIRST_INTERVAL
        """Seconds between two heartbeats."""
        self.joined_at: float | None = None
        """The time of the latest accepted join, or None before the first."""
        self._accepted: frozenset[str] | None = None
        self._sent: frozenset[str] | None = None
        self._is_in_flight = False
        self._is_stale = False
        """True if the heartbeat in flight belongs to a membership that has ended."""
        self._next: float | None = None
        self._pace = FOLLOW_UP
        self._failures = 0

    @property
    def is_member(self) -> bool:
        """True if the coordinator knows this member."""
        return self.epoch > JOIN_EPOCH

    def next_deadline(self) -> float | None:
        """Return the time of the next tick, or None if there is none."""
        return None if self._is_in_flight else self._next

    def handle(self, event: MemberEvent, now: float) -> list[MemberCommand]:
        """Apply an event, and return the commands that follow."""
        commands: list[MemberCommand] = []
        match event:
            case Subscribe(topics):
                self._subscribe(topics, now, commands)
            case Answered():
                self._is_in_flight = False
                if self._is_stale:
                    self._is_stale = False
                else:
                    self._answered(event, now, commands)
            case Unanswered():
                self._is_in_flight = False
                if self._is_stale:
                    self._is_stale = False
                else:
                    # The coordinator may have missed the topics, so the next heartbeat has them.
                    self._accepted = None
                    self._pause(now)
            case Retry() if self.has_failed:
                self.has_failed, self._next = False, now
        if not self._is_in_flight and self._next is not None and now >= self._next:
            self._send(commands)
        return commands

    def _subscribe(self, topics: frozenset[str], now: float, commands: list[MemberCommand]) -> None:
        if topics == self.topics:
            return
        before, self.topics = self.topics, topics
        if topics:
            self.has_failed, self._next = False, now
            self._pace = FOLLOW_UP
            return
        self._next = None
        self._is_stale = self._is_in_flight
        if before and (self.is_member or self._is_in_flight):
            commands.append(SendLeave())
        self._lose(commands)

    def _lose(self, commands: list[MemberCommand]) -> None:
        self.epoch, self._accepted = JOIN_EPOCH, None
        if self.assignment:
            self.assignment = frozenset()
            commands.append(Assign(self.assignment))

    def _send(self, commands: list[MemberCommand]) -> None:
        is_full = self.epoch == JOIN_EPOCH or self._accepted != self.topics
        self._sent = self.topics if is_full else None
        self._is_in_flight = True
        commands.append(SendHeartbeat(self.epoch, self._sent))

    def _answered(self, event: Answered, now: float, commands: list[MemberCommand]) -> None:
        match action_for(ApiKey.SHARE_GROUP_HEARTBEAT, event.code):
            case CoordinatorAction.PROCEED:
                self._accept(event, now, commands)
            case CoordinatorAction.LOSE_MEMBER if self.epoch > JOIN_EPOCH:
                self._lose(commands)
                self._next = now
            case CoordinatorAction.RETRY:
                self._pause(now)
            case CoordinatorAction.REDISCOVER:
                commands.append(DropCoordinator())
                self._pause(now)
            case CoordinatorAction.REPORT:
                commands.append(Fail(event.code, event.message))
                self._accepted, self._next = None, now + self.interval
            case _:
                self.has_failed, self._next = True, None
                self._lose(commands)
                commands.append(Fail(event.code, event.message))

    def _accept(self, event: Answered, now: float, commands: list[MemberCommand]) -> None:
        self._failures = 0
        if self.epoch == JOIN_EPOCH:
            self.joined_at, self._pace = now, FOLLOW_UP
        self.epoch = event.epoch
        if self._sent is not None:
            self._accepted = self._sent
        if event.interval > 0:
            self.interval = max(event.interval, MIN_INTERVAL)
        if event.assignment is not None and event.assignment != self.assignment:
            self.assignment = event.assignment
            commands.append(Assign(self.assignment))
        if self._accepted != self.topics:
            self._next = now
            return
        pause = self.interval
        if not self.assignment:
            pause = min(self._pace, self.interval * FOLLOW_UP_SHARE)
            self._pace = min(2 * self._pace, self.interval)
        self._next = now + pause

    def _pause(self, now: float) -> None:
        self._failures += 1
        self._next = now + self._backoff(self._failures)
