"""The loss of a classic membership, and the errors that end it."""

from __future__ import annotations

from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._leadership import Leadership
from kohort.coordinator_client.classic._member import MemberData
from kohort.coordinator_client.machine._commands import LeaveGroup, StopDelivery
from kohort.coordinator_client.machine._failure_reports import FailureReports
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._pending_commands import PendingCommands, Role
from kohort.logs import get_logger
from kohort.types import TopicPartition

logger = get_logger(__name__)


class MembershipFailures(FailureReports):
    """The loss and the errors of one classic membership. None of its methods waits."""

    def __init__(
        self,
        member: MemberData,
        pending: PendingCommands,
        heartbeats: Heartbeats,
        leadership: Leadership,
    ) -> None:
        super().__init__(member, pending)
        self._member: MemberData = member
        self._heartbeats = heartbeats
        self._leadership = leadership

    def lose(self, reason: str, *, keep_member_id: bool = False) -> None:
        """End the membership, because the group has continued without this member.

        Others may own its partitions already.
        """
        self._report_loss(reason)
        self._member.end(keep_member_id=keep_member_id)
        self._member.cause = "removed"
        self._pending.forget(Role.HEARTBEAT)
        self._heartbeats.stop()
        self._leadership.stop()

    def lose_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop the delivery of partitions that the group took away before this member rejoined."""
        member = self._member
        logger.warning(
            "[%s] lost %s: another member may have owned the partitions between generations %d "
            "and %d",
            member.settings.group_id,
            describe(partitions),
            member.owned_generation,
            member.generation,
            extra=member.log_fields,
        )
        self._pending.emit(StopDelivery(partitions))

    def fail(self, error: Exception, *, leave: bool = False) -> None:
        """End the membership and keep the error for :meth:`report`.

        With ``leave``, send LeaveGroup, because the coordinator still waits for this member.
        Otherwise keep the member id. With a new one the group would wait for the old one until its
        session expires.
        """
        leave = leave and bool(self._member.member_id) and not self._member.settings.static
        if leave:
            self.send_leave_group(f"failed: {error}")
        self.keep(error)
        self.lose(str(error), keep_member_id=not (leave or self.is_fenced))
        self._member.cause = "fenced" if self.is_fenced else "failed"

    def send_leave_group(self, reason: str) -> None:
        """Send LeaveGroup once, without a wait for its response."""
        token = self._pending.new_token()
        self._pending.emit(LeaveGroup(token, self._member.member_id, reason))
