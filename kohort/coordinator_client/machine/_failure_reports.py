"""The errors that end a membership, and their reports to the caller, for any group protocol."""

from __future__ import annotations

from kohort.coordinator_client.machine._commands import ReportFailure, StopDelivery
from kohort.coordinator_client.machine._events import CommandFailed, Event
from kohort.coordinator_client.machine._member import CommonMemberData
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._pending_commands import PendingCommands
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupError,
    KafkaError,
    MessageEncodeError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kohort.logs import get_logger
from kohort.transport import escaped

logger = get_logger(__name__)

REFUSED_SECONDS = 10.0
"""Longest pause between two attempts to join a group without the required permission."""
POLL_CHECK_SECONDS = 0.5
"""Seconds between checks for a poll() of the caller after an error."""


class FailureReports:
    """The errors of one membership. None of its methods waits."""

    def __init__(self, member: CommonMemberData, pending: PendingCommands) -> None:
        self._member = member
        self._pending = pending
        self.is_fenced = False
        self.join_obstruction: str | None = None
        """Reason why the join must be retried, or None after a success."""
        self.last: str | None = None
        """The latest reported error, or None after a complete rebalance."""
        self.denied_operation: str | None = None
        """Operation on the group that the latest error reports as denied."""
        self._error: Exception | None = None
        """An error to report after the callback for the lost partitions."""
        self._count = 0
        self._reported_at = 0.0
        self._next_check = 0.0

    def _report_loss(self, reason: str) -> None:
        """Log the loss of the membership, and stop the delivery of its partitions."""
        member = self._member
        if member.owned:
            logger.warning(
                "[%s] membership lost, because %s. Lost partitions: %s",
                member.settings.group_id,
                escaped(reason),
                describe(member.owned),
                extra=member.log_fields,
            )
            # The callback waits for poll(), which must not return records fetched since.
            self._pending.emit(StopDelivery(member.owned))
        else:
            logger.debug("[%s] membership reset: %s", member.settings.group_id, escaped(reason))

    def keep(self, error: Exception) -> None:
        """Keep an error that ended the membership for :meth:`report`."""
        self._error = error
        self.is_fenced = isinstance(error, FencedInstanceIdError | UnreleasedInstanceIdError)

    def report(self) -> bool:
        """Report the error of :meth:`fail` and change to FAILED. Return False without an error."""
        error, self._error = self._error, None
        if error is None:
            return False
        self._count += 1
        self._reported_at = self._pending.now
        self._next_check = self._pending.now + self._pause_after(error)
        self._member.cell.move(MemberState.FAILED, str(error))
        self.notify(error)
        return True

    def notify(self, error: Exception) -> None:
        """Report an error that the next poll() raises."""
        self.last = f"{type(error).__name__}: {error}"
        self.denied_operation = None
        if isinstance(error, GroupAuthorizationFailedError):
            self.denied_operation = error.operation
        failure = error if isinstance(error, KafkaError) else GroupError(str(error))
        self._pending.emit(ReportFailure(failure))

    def _pause_after(self, error: Exception) -> float:
        """Return the seconds before a retry. A missing permission makes them longer."""
        pause = self._member.backoff(self._count)
        if isinstance(error, GroupAuthorizationFailedError):
            return max(pause, min(2.0 ** (self._count - 1), REFUSED_SECONDS))
        return pause

    def deadline(self) -> float | None:
        """Return the time of the next check for a poll() after a reported error."""
        is_waiting = self._member.state is MemberState.FAILED and not self.is_fenced
        return self._next_check if is_waiting else None

    def has_polled_since(self, last_poll: float) -> bool:
        """True if the caller polled after the error was reported and the pause has passed."""
        deadline = self.deadline()
        if deadline is None or self._pending.now < deadline:
            return False
        if last_poll > self._reported_at:
            return True
        self._next_check = self._pending.now + POLL_CHECK_SECONDS
        return False

    def forget(self) -> None:
        """Forget the reported errors after a complete rebalance."""
        self._count = 0
        self.last = self.denied_operation = None

    def forget_all(self) -> None:
        """Forget all errors after the member has left."""
        self.forget()
        self._error = None
        self.is_fenced = False


def is_final(error: Exception) -> bool:
    """True if a retry does not fix the error."""
    if isinstance(error, MessageEncodeError | UnsupportedVersionError):
        return True
    if isinstance(error, BrokerResponseError):
        return not error.retriable
    return not isinstance(error, KafkaError | OSError)


def error_of(event: Event | None) -> Exception:
    """Return the error of a command that failed, or one for an unexpected response."""
    if isinstance(event, CommandFailed):
        return event.error
    return TypeError(f"internal error in kohort: unexpected event {event!r}")
