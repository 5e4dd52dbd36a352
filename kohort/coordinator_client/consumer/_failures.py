"""The loss of a membership in a consumer group, and the errors that end it."""

from __future__ import annotations

from kohort.coordinator_client.consumer._heartbeats import ConsumerHeartbeats
from kohort.coordinator_client.consumer._member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMemberData,
)
from kohort.coordinator_client.machine._commands import ConsumerHeartbeat
from kohort.coordinator_client.machine._failure_reports import FailureReports
from kohort.coordinator_client.machine._pending_commands import PendingCommands


class ConsumerFailures(FailureReports):
    """The loss and the errors of one membership. None of its methods waits."""

    def __init__(
        self,
        member: ConsumerMemberData,
        pending: PendingCommands,
        heartbeats: ConsumerHeartbeats,
    ) -> None:
        super().__init__(member, pending)
        self._member: ConsumerMemberData = member
        self._heartbeats = heartbeats

    def lose(self, reason: str, *, keep_member_id: bool = True) -> None:
        """End the membership, because the group has continued without this member.

        Others may own its partitions already.
        """
        self._report_loss(reason)
        self._member.end(keep_member_id=keep_member_id)
        self._member.cause = "removed"
        self._heartbeats.stop()

    def fail(self, error: Exception, *, leave: bool = False) -> None:
        """End the membership and keep the error for :meth:`report`.

        With ``leave``, leave the group first, so that others get the partitions at once.
        """
        if leave and self._member.in_group and not self._member.settings.static:
            self.send_leave()
        self.keep(error)
        self.lose(str(error), keep_member_id=not self.is_fenced)
        self._member.cause = "fenced" if self.is_fenced else "failed"

    def send_leave(self) -> None:
        """Leave once, without a wait for the response. A static member keeps its partitions.

        The request may fail, so close() leaves again.
        """
        member = self._member
        token = self._pending.new_token()
        epoch = LEAVE_STATIC_EPOCH if member.settings.static else LEAVE_EPOCH
        self._pending.emit(leave_command(member, token, epoch))


def leave_command(member: ConsumerMemberData, token: int, epoch: int) -> ConsumerHeartbeat:
    """Return the heartbeat that leaves the group."""
    return ConsumerHeartbeat(token, member.member_id, epoch, member.settings.session_timeout)
