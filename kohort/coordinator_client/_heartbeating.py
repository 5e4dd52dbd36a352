"""When to heartbeat, and when the coordinator counts as lost."""

from __future__ import annotations

import math

from kohort.coordinator_client._commands import DropCoordinator, Heartbeat
from kohort.coordinator_client._member import MemberData, Role

FOLLOW_UP = 0.05
"""Seconds to the first heartbeat after a cooperative JoinGroup; doubled with each one.

A cooperative rebalance that takes partitions away is followed by another, which gives them to their
new owners, as soon as they were given up. Who waited for his ordinary heartbeat to hear of it would
hold it up for a whole interval; like this it takes half as long again as the giving up did."""


class Heartbeats:
    """The timer of a member's heartbeats: one in flight, the next an interval after the last.

    Times count from the sending, as that is what the coordinator saw at the earliest.
    """

    def __init__(self, member: MemberData) -> None:
        self._member = member
        self._running = False
        self._next = 0.0
        self._sent = 0.0
        self._asked = 0.0
        self._session_end = 0.0
        self._confirmed_until = math.inf
        self._failures = 0
        self._pace = 0.0
        self.count = 0
        """How many were answered, in all generations."""
        self.last: float | None = None
        """When the latest one that was answered had been sent."""

    @property
    def confirmed_until(self) -> float:
        """Until when the coordinator cannot have given this member up; no limit while not one."""
        return self._confirmed_until if self._running else math.inf

    @property
    def session_end(self) -> float | None:
        """When the coordinator counts as lost, unless it answers; None while not a member."""
        return self._session_end if self._running else None

    def start(self, now: float) -> None:
        """A generation begins. A heartbeat of the one before is nobody's business any more."""
        self.stop()
        self._running = True
        self._pace = FOLLOW_UP if self._member.settings.cooperative else math.inf
        self._next = now + self._interval()
        self._session_end = self._confirmed_until = now + self._member.settings.session_timeout
        self._failures = 0

    def stop(self) -> None:
        self._running = False
        self._member.forget(Role.HEARTBEAT)

    def _interval(self) -> float:
        return min(self._pace, self._member.settings.heartbeat_interval)

    def deadline(self) -> float | None:
        if not self._running:
            return None
        if self._member.waits_for(Role.HEARTBEAT):
            return self._session_end
        return min(self._next, self._session_end)

    def found(self, now: float) -> None:
        """A coordinator was found: it gets a whole session to answer what is sent now."""
        self._sent = now
        self._session_end = now + self._member.settings.session_timeout

    def answered(self) -> None:
        """The coordinator is there, whatever it said."""
        self.count += 1
        self.last = self._asked
        self._session_end = self._sent + self._member.settings.session_timeout
        self._pace *= 2
        self._next = self._sent + self._interval()

    def confirmed(self) -> None:
        """The coordinator counted this member among the group when it got the last heartbeat."""
        self._failures = 0
        self._confirmed_until = self._asked + self._member.settings.session_timeout

    def retry(self, now: float, *, at_once: bool = False) -> None:
        """The heartbeat has to be sent again."""
        first = at_once and self._failures == 0
        self._next = now if first else now + self._member.backoff(self._failures)
        self._failures += 1

    def tick(self, now: float) -> bool:
        """Send what is due. True if the session expired: the coordinator counts as lost."""
        member = self._member
        if not self._running:
            return False
        expired = now >= self._session_end
        if expired:
            silence = now - self._session_end + member.settings.session_timeout
            member.forget(Role.HEARTBEAT)
            member.emit(DropCoordinator(f"no heartbeat was answered for {silence:.1f} s"))
            self._session_end = now + member.settings.session_timeout
            self._next = now
        if now >= self._next and not member.waits_for(Role.HEARTBEAT):
            self._sent = self._asked = now
            # Should this one be lost, there is time for another within the session.
            timeout = member.settings.session_timeout * 2 / 3
            member.emit(
                Heartbeat(
                    member.start(Role.HEARTBEAT), member.member_id, member.generation, timeout
                )
            )
        return expired
