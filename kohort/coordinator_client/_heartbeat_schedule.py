"""The times of a consumer group member's heartbeats."""

from __future__ import annotations

import math

from kohort.coordinator_client._consumer_member import ConsumerMemberData

FIRST_INTERVAL = 5.0
"""Seconds between heartbeats until a response has the interval of the broker."""
MIN_INTERVAL = 0.1
"""Shortest interval in seconds, also if the broker asks for a shorter one."""
MAX_SHARE = 1 / 3
"""Longest interval as a share of the session timeout, so that a lost heartbeat ends no session."""
FOLLOW_UP = 0.05
"""Seconds from a response to the first follow-up heartbeat. Each further one doubles them."""
FOLLOW_UP_SHARE = 0.2
"""Longest pause between follow-up heartbeats, as a share of the interval.

A member learns of released partitions by a heartbeat. With longer pauses it would learn of them
later than without follow-up heartbeats.
"""
FIRST_INTERVALS = 2
"""Intervals with follow-up heartbeats for a new member that waits for its first partitions.

Their owners release them within an interval. One of them may do so just after the next regular
heartbeat of the new member.
"""
NEXT_INTERVALS = 1
"""Intervals with follow-up heartbeats after a revocation or a changed subscription."""


class HeartbeatSchedule:
    """The schedule of heartbeats. One is in flight at most, and they are sent an interval apart.

    An interval counts from the sending. If the response takes longer than it, the next heartbeat
    follows the response at once.
    """

    def __init__(self, member: ConsumerMemberData) -> None:
        self._member = member
        self._interval = FIRST_INTERVAL
        self._is_running = self._is_in_flight = self._is_due = False
        self._next = self._regular = self._sent_at = 0.0
        self._pace = FOLLOW_UP
        self.follow_until = -math.inf
        """The time until which follow-up heartbeats are sent."""
        self._failures = 0
        self._confirmed_until = math.inf
        self.count = 0
        """Number of heartbeats with a response."""
        self.last: float | None = None
        """Time when the latest heartbeat with a response was sent."""

    @property
    def confirmed_until(self) -> float:
        """The time until which the coordinator cannot have removed this member.

        It counts from the sending of the latest heartbeat that was accepted, and is infinite
        without a membership.
        """
        return self._confirmed_until if self._is_running else math.inf

    def start(self, now: float) -> None:
        """Start with a heartbeat at ``now``, which joins."""
        self._is_running, self._is_in_flight, self._is_due = True, False, False
        self._next, self._regular = now, -math.inf
        self.follow_until, self._confirmed_until = -math.inf, math.inf
        self._failures = 0

    def stop(self) -> None:
        self._is_running = self._is_in_flight = False

    def deadline(self) -> float | None:
        """Return the time of the next heartbeat, or None while one is in flight."""
        return self._next if self._is_running and not self._is_in_flight else None

    def is_due(self, now: float) -> bool:
        """True if a heartbeat must be sent now."""
        deadline = self.deadline()
        return deadline is not None and now >= deadline

    def request(self, now: float) -> None:
        """Send a heartbeat now, or directly after the one in flight."""
        self._next = now
        self._is_due = self._is_in_flight

    def follow_up(self, now: float, intervals: float) -> None:
        """Send follow-up heartbeats for this many intervals, at pauses that double.

        With partitions, they end at the next regular heartbeat.
        """
        self._pace = FOLLOW_UP
        self.follow_until = now + intervals * self._interval
        self._next = min(self._next, now + self._pause())

    def _pause(self) -> float:
        """Return the pause before the next follow-up heartbeat, and double the one after it."""
        pause = min(self._pace, self._interval * FOLLOW_UP_SHARE)
        self._pace *= 2
        return pause

    def note_sent(self, now: float) -> None:
        """Note that a heartbeat is sent now."""
        self._sent_at = now
        self._is_in_flight, self._is_due = True, False

    def answered(self) -> None:
        """Note a response with any error code."""
        self._is_in_flight = False
        self.count += 1
        self.last = self._sent_at

    def accepted(self, now: float, interval: float) -> None:
        """Note a response without an error, with the broker's interval in seconds."""
        self._failures = 0
        session_timeout = self._member.settings.session_timeout
        if interval > 0:
            longest = session_timeout * MAX_SHARE
            self._interval = min(max(interval, MIN_INTERVAL), longest)
        self._confirmed_until = self._sent_at + session_timeout
        if now >= self._regular:
            self._regular = self._sent_at + self._interval
            self._pace = FOLLOW_UP
            if self._member.owned:
                self.follow_until = -math.inf
        self._next = self._regular
        if now < self.follow_until:
            self._next = min(self._next, now + self._pause())
        if self._is_due:
            self._next, self._is_due = now, False

    def repeat(self, now: float, *, at_once: bool = False) -> None:
        """Repeat the heartbeat after a pause. ``at_once`` leaves out the first pause."""
        self._is_in_flight = self._is_due = False
        is_first = at_once and self._failures == 0
        self._next = now if is_first else now + self._member.backoff(self._failures)
        self._failures += 1

    def postpone(self, now: float) -> None:
        """Repeat the heartbeat after an interval."""
        self._is_in_flight = self._is_due = False
        self._next = now + self._interval
