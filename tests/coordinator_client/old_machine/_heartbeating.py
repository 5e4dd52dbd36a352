"""The timer of a member's heartbeats."""

from __future__ import annotations

import math

from kohort.coordinator_client._commands import DropCoordinator, Heartbeat
from tests.coordinator_client.old_machine._member import MemberData, Role

FOLLOW_UP = 0.05
"""Seconds to the first heartbeat after a cooperative JoinGroup. Each response doubles them.

A cooperative rebalance that revokes partitions is followed by another one, which assigns them to
their new owners. A member learns of it by a heartbeat. With the usual interval it would delay the
second rebalance for a whole interval. With doubling it adds at most half of the time that the
revocation took.
"""


class Heartbeats:
    """The timer of a member's heartbeats. One is in flight, and the next follows an interval later.

    Times count from the sending of a request, the earliest time when the coordinator could see it.
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
        """Number of heartbeats with a response, in all generations."""
        self.last: float | None = None
        """Time when the latest heartbeat with a response was sent."""

    @property
    def confirmed_until(self) -> float:
        """The time until which the coordinator cannot have removed this member.

        It is infinite without a membership.
        """
        return self._confirmed_until if self._running else math.inf

    @property
    def session_end(self) -> float | None:
        """The time when the coordinator counts as lost without a response; None for no member."""
        return self._session_end if self._running else None

    def start(self, now: float) -> None:
        """Start the timer for a new generation. Cancel a heartbeat of the one before."""
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
        """Note that a coordinator was found, which has a whole session to respond from now on."""
        self._sent = now
        self._session_end = now + self._member.settings.session_timeout

    def answered(self) -> None:
        """Note a response of the coordinator, with any error code."""
        self.count += 1
        self.last = self._asked
        self._session_end = self._sent + self._member.settings.session_timeout
        self._pace *= 2
        self._next = self._sent + self._interval()

    def confirmed(self) -> None:
        """Note that the coordinator still had this member when it got the latest heartbeat."""
        self._failures = 0
        self._confirmed_until = self._asked + self._member.settings.session_timeout

    def retry(self, now: float, *, at_once: bool = False) -> None:
        """Schedule a retry of the heartbeat."""
        first = at_once and self._failures == 0
        self._next = now if first else now + self._member.backoff(self._failures)
        self._failures += 1

    def tick(self, now: float) -> bool:
        """Send a heartbeat that is due.

        Return True if the session expired, so that the coordinator counts as lost.
        """
        member = self._member
        if not self._running:
            return False
        expired = now >= self._session_end
        if expired:
            silence = now - self._session_end + member.settings.session_timeout
            member.forget(Role.HEARTBEAT)
            member.emit(DropCoordinator(f"no heartbeat had a response for {silence:.1f} s"))
            self._session_end = now + member.settings.session_timeout
            self._next = now
        if now >= self._next and not member.waits_for(Role.HEARTBEAT):
            self._sent = self._asked = now
            # If this heartbeat is lost, there is time for another one within the session.
            timeout = member.settings.session_timeout * 2 / 3
            member.emit(
                Heartbeat(
                    member.start(Role.HEARTBEAT), member.member_id, member.generation, timeout
                )
            )
        return expired
