"""The timer of a member's heartbeats. SignalHandler handles their responses."""

from __future__ import annotations

import math

from kohort.coordinator_client.classic._member import MemberData

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
        self._is_in_flight = False
        self._next = 0.0
        self._session_start = 0.0
        self._sent_at = 0.0
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
        """Start the timer for a new generation."""
        self._running, self._is_in_flight = True, False
        self._pace = FOLLOW_UP if self._member.settings.cooperative else math.inf
        self._next = now + self._interval()
        self._session_end = self._confirmed_until = now + self._member.settings.session_timeout
        self._failures = 0

    def stop(self) -> None:
        self._running = self._is_in_flight = False

    def _interval(self) -> float:
        return min(self._pace, self._member.settings.heartbeat_interval)

    def deadline(self) -> float | None:
        if not self._running:
            return None
        if self._is_in_flight:
            return self._session_end
        return min(self._next, self._session_end)

    def found(self, now: float) -> None:
        """Note that a coordinator was found, which has a whole session to respond from now on."""
        self._session_start = now
        self._session_end = now + self._member.settings.session_timeout

    def answered(self) -> None:
        """Note a response of the coordinator, with any error code."""
        self._is_in_flight = False
        self.count += 1
        self.last = self._sent_at
        self._session_end = self._session_start + self._member.settings.session_timeout
        self._pace *= 2
        self._next = self._session_start + self._interval()

    def confirmed(self) -> None:
        """Note that the coordinator still had this member when it got the latest heartbeat."""
        self._failures = 0
        self._confirmed_until = self._sent_at + self._member.settings.session_timeout

    def retry(self, now: float, *, at_once: bool = False) -> None:
        """Schedule a retry of the heartbeat."""
        self._is_in_flight = False
        first = at_once and self._failures == 0
        self._next = now if first else now + self._member.backoff(self._failures)
        self._failures += 1

    def check_session(self, now: float) -> float | None:
        """Return the seconds without a response if the session expired, else None.

        The next session and a heartbeat begin now.
        """
        if not self._running or now < self._session_end:
            return None
        silence = now - self._session_end + self._member.settings.session_timeout
        self._session_end = now + self._member.settings.session_timeout
        self._next = now
        self._is_in_flight = False
        return silence

    def is_due(self, now: float) -> bool:
        """True if a heartbeat must be sent now."""
        return self._running and not self._is_in_flight and now >= self._next

    def note_sent(self, now: float) -> None:
        """Note that a heartbeat is sent now."""
        self._session_start = self._sent_at = now
        self._is_in_flight = True
