"""The heartbeats of a consumer group member: which fields a request has, and when it is sent."""

from __future__ import annotations

import math

from kohort.coordinator_client.consumer._member import JOIN_EPOCH, ConsumerMemberData
from kohort.coordinator_client.machine._commands import ConsumerHeartbeat, IdPartition
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.errors import ErrorCode

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


TIMEOUT_SHARE = 2 / 3
"""Share of the session timeout for a heartbeat. There is time for another one after a lost one."""


class ConsumerHeartbeats:
    """The heartbeats of one member.

    The coordinator keeps what it was sent. So a request has a field only if it changed. After an
    error the coordinator may have missed fields, or this member may have missed an assignment. Then
    a full request repairs both, because its response has the whole assignment.
    """

    def __init__(self, member: ConsumerMemberData, pending: PendingCommands) -> None:
        self._member = member
        self._pending = pending
        self.schedule = HeartbeatSchedule(member)
        self.must_acknowledge = False
        """True until a response to a heartbeat with the owned partitions."""
        self.joined_regex = ""
        """The pattern that the coordinator got last."""
        self._is_full = True
        self._in_flight: ConsumerHeartbeat | None = None
        self._reported_owned: frozenset[IdPartition] | None = None

    @property
    def is_current(self) -> bool:
        """True if the coordinator has the subscription."""
        member = self._member
        return member.joined_topics == member.wanted and self.joined_regex == member.regex

    @property
    def has_sent_current(self) -> bool:
        """True unless the heartbeat in flight has topics or a pattern that were replaced."""
        sent, member = self._in_flight, self._member
        if sent is None:
            return True
        has_topics = sent.topics is None or sent.topics == member.wanted
        return has_topics and (sent.regex is None or sent.regex == member.regex)

    def start(self) -> None:
        """Start with a heartbeat that joins."""
        self.must_acknowledge, self._is_full = False, True
        self.schedule.start(self._pending.now)

    def stop(self) -> None:
        """Stop, and drop the response of the heartbeat in flight."""
        self._pending.forget(Role.HEARTBEAT)
        self.schedule.stop()

    def request_full(self) -> None:
        """Send all fields with the next heartbeat, unless the one in flight has them."""
        if self._in_flight is None or not self._in_flight.is_full:
            self._is_full = True

    def acknowledge(self) -> None:
        """Send the owned partitions at once, unless the coordinator has them."""
        if self._reported_owned != self._member.owned_by_id():
            self.must_acknowledge = True
            self.schedule.request(self._pending.now)

    def send_if_due(self) -> None:
        """Send a heartbeat that is due."""
        if not self.schedule.is_due(self._pending.now):
            return
        member = self._member
        is_joining = not member.in_group
        member.ensure_member_id()
        is_full = self._is_full or is_joining
        sends_owned = is_full or self.must_acknowledge
        has_pattern = bool(member.regex or self.joined_regex)
        self._in_flight = ConsumerHeartbeat(
            token=self._pending.start(Role.HEARTBEAT),
            member_id=member.member_id,
            epoch=JOIN_EPOCH if is_joining else member.generation,
            timeout=member.settings.session_timeout * TIMEOUT_SHARE,
            is_full=is_full,
            topics=member.wanted if is_full or member.joined_topics != member.wanted else None,
            regex=member.regex if has_pattern and (is_full or not self.is_current) else None,
            owned=member.owned_by_id() if sends_owned else None,
        )
        self._is_full = False
        member.is_known = True
        self.schedule.note_sent(self._pending.now)
        self._pending.emit(self._in_flight)

    def accepted(self, interval: float, *, has_assignment: bool) -> None:
        """Note a response without an error to the heartbeat in flight."""
        sent, member = self._in_flight, self._member
        self._in_flight, member.may_hold_instance = None, True
        self.schedule.accepted(self._pending.now, interval)
        if sent is None:
            return
        if sent.topics is not None:
            member.joined_topics = sent.topics
        if sent.regex is not None:
            self.joined_regex = sent.regex
        if sent.owned is not None or has_assignment:
            self._reported_owned = sent.owned
        if sent.owned is not None and sent.owned == member.owned_by_id():
            self.must_acknowledge = False
        if not self.is_current or self.must_acknowledge:
            self.schedule.request(self._pending.now)

    def failed(self, code: int = ErrorCode.NONE) -> None:
        """Note that the heartbeat in flight has no response, or one with an error code.

        The coordinator may have taken the member in and failed after that.
        """
        self._in_flight = None
        self._is_full = True
        if code != ErrorCode.UNRELEASED_INSTANCE_ID:
            self._member.may_hold_instance = True
