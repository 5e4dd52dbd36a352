"""The heartbeats of a consumer group member: which fields a request has, and when it is sent."""

from __future__ import annotations

from kohort.coordinator_client._commands import ConsumerHeartbeat, IdPartition
from kohort.coordinator_client._consumer_member import JOIN_EPOCH, ConsumerMemberData
from kohort.coordinator_client._heartbeat_schedule import HeartbeatSchedule
from kohort.coordinator_client._pending_commands import PendingCommands, Role
from kohort.errors import ErrorCode

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
