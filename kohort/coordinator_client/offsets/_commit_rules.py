"""The rules for commits and reads of offsets that depend on the membership, without I/O.

A member of a classic group names its generation, and a member of a consumer group its epoch. A
rejected epoch is no loss. The member sends a heartbeat at once, whose response has the new epoch.
Then the same offsets are committed again for partitions that the member has owned throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import CommitRejected, EpochRejected, Event
from kohort.coordinator_client.machine._member import NO_GENERATION
from kohort.coordinator_client.machine._membership import Membership
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import CommitFailedError, ErrorCode, RebalanceInProgressError, error_name
from kohort.protocol import ApiKey
from kohort.transport import in_seconds
from kohort.types import NamedTuple, OffsetAndMetadata, TopicPartition

OffsetsByPartition = Mapping[TopicPartition, OffsetAndMetadata]

READ_REJECTIONS = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.ILLEGAL_GENERATION,
    }
)
"""Error codes of a read whose member or epoch the coordinator does not know.

They never mean that nothing is committed. Otherwise the consumer would start at the end of the log
and skip records.
"""


class OffsetsSender(NamedTuple):
    """The member that a request for offsets names."""

    generation: int
    """The generation or the member epoch; -1 from outside the group."""
    member_id: str
    has_epoch: bool = False
    """True for a member of a consumer group (KIP-848)."""

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION


OUTSIDER = OffsetsSender(NO_GENERATION, "")
"""A request from outside the group."""


class Commit:
    """The progress of one commit."""

    def __init__(self, offsets: OffsetsByPartition, membership: Membership) -> None:
        self.offsets = offsets
        self.remaining = dict(offsets)
        """Offsets that are not committed yet."""
        self.outdated: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets of topics that were recreated."""
        self.deleted: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets of topics that were deleted."""
        self.unknown: set[TopicPartition] = set()
        """Partitions whose topic the coordinator did not know."""
        self.denied: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets of topics on which READ is missing."""
        self.released: dict[TopicPartition, OffsetAndMetadata] = {}
        """Offsets of partitions that the member gave up after its epoch was rejected."""
        self.losses = membership.losses
        """Ended memberships before the commit."""
        self.has_begun_inside = membership.state is not MemberState.UNSUBSCRIBED
        """True if the consumer was subscribed when the commit began."""
        self._releases = {tp: membership.releases.get(tp, 0) for tp in offsets}
        self.rejected_since: float | None = None
        """Time of the first rejected epoch."""

    def pop_deleted(self, topics: Container[str]) -> None:
        """Give up the offsets of these topics, unless the coordinator still knew them.

        The topics disappeared from the metadata during the commit. A topic that was never in it may
        be new, so its offsets are committed again until the timeout.
        """
        for tp in [tp for tp in self.remaining if tp in self.unknown and tp.topic in topics]:
            self.deleted[tp] = self.remaining.pop(tp)

    def released_by(self, membership: Membership) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of partitions that the member does not own, or owns again."""
        return {
            tp: at
            for tp, at in self.remaining.items()
            if tp not in membership.owned or membership.releases.get(tp, 0) != self._releases[tp]
        }


class CommitRules:
    """The identity of requests for offsets, and the reactions to a rejected one.

    ``patience`` limits the retries of a commit without a timeout whose epoch is rejected again and
    again, in seconds.
    """

    def __init__(
        self,
        group_id: str,
        membership: Membership,
        send_event: Callable[[Event], None],
        *,
        patience: float,
    ) -> None:
        self._group_id = group_id
        self._membership = membership
        self._send_event = send_event
        self._patience = patience

    @property
    def must_wait(self) -> bool:
        """True while a leaving member completes a rebalance and has no generation to name."""
        member = self._membership
        return member.is_finishing_rebalance and member.state is not MemberState.JOINING

    def begin(self, offsets: OffsetsByPartition) -> Commit:
        """Return a new commit by the present owner of the partitions."""
        return Commit(offsets, self._membership)

    # --- identity -------------------------------------------------------------------------------

    def reader(self) -> OffsetsSender:
        """Return the identity for a read of committed offsets.

        Only a consumer group checks it. Without a current epoch the read is one from outside.
        """
        member = self._membership
        if not member.uses_epochs or not self._is_member:
            return OUTSIDER
        return OffsetsSender(member.generation, member.member_id, has_epoch=True)

    def committer(self, commit: Commit) -> OffsetsSender:
        """Return the identity for a commit. Raise an error if the commit would certainly fail.

        After a rejected epoch, offsets of partitions that the member gave up meanwhile are moved
        from ``commit.remaining`` to ``commit.released``.
        """
        member, offsets = self._membership, commit.remaining
        if member.state is MemberState.UNSUBSCRIBED:
            if commit.has_begun_inside and commit.losses != member.losses:
                raise self._lost_error(offsets)
            return OUTSIDER
        if not self._is_member:
            then = "Subscribe again" if member.is_fenced else "Keep polling; the consumer rejoins"
            raise CommitFailedError(
                f"commit failed for {describe(offsets)}: the consumer is not a member of group "
                f"{self._group_id!r}, its state is {member.state.value!r}. Another member may own "
                f"the partitions. {then}",
                offsets=offsets,
            )
        if commit.losses != member.losses:
            raise self._lost_error(offsets)
        gone = commit.released_by(member)
        if gone and commit.rejected_since is None:
            raise CommitFailedError(
                f"commit failed: {describe(gone)} is not assigned to this consumer in "
                f"{'epoch' if member.uses_epochs else 'generation'} {member.generation} of group "
                f"{self._group_id!r}. Commit only offsets of assigned partitions",
                offsets=gone,
            )
        if member.state in (MemberState.ASSIGNING, MemberState.SYNCING):
            raise self._rebalance_error()
        commit.released.update(gone)
        for tp in gone:
            del offsets[tp]
        return OffsetsSender(member.generation, member.member_id, has_epoch=member.uses_epochs)

    @property
    def _is_member(self) -> bool:
        member = self._membership
        return member.generation > (0 if member.uses_epochs else NO_GENERATION)

    def _is_current(self, sent: OffsetsSender) -> bool:
        member = self._membership
        return (sent.generation, sent.member_id) == (member.generation, member.member_id)

    # --- rejections -----------------------------------------------------------------------------

    def read_rejected(self, code: int, sent: OffsetsSender) -> bool:
        """True if the code rejects the member of a read, which is then repeated.

        A heartbeat goes out at once, unless the member has a new epoch already.
        """
        if not sent.is_member or code not in READ_REJECTIONS:
            return False
        if self._is_current(sent):
            self._send_event(EpochRejected(sent.generation))
        return True

    def commit_rejected(
        self,
        code: int,
        sent: OffsetsSender,
        commit: Commit,
        rejected: OffsetsByPartition,
        now: float,
    ) -> None:
        """Raise the error for a commit that the coordinator rejected; return to retry it.

        A retry makes sense when the member has a new generation, or gets one soon.
        """
        member = self._membership
        if not sent.is_member:
            raise CommitFailedError(
                f"commit failed for {describe(rejected)} with {error_name(code)}: group "
                f"{self._group_id!r} has members, and only they may commit. Stop its members "
                "first, or call subscribe() to become one",
                offsets=rejected,
            ) from error_for(ApiKey.OFFSET_COMMIT, code, self._group_id)
        if sent.has_epoch:
            self._epoch_rejected(code, sent, commit, rejected, now)
            return
        if not self._is_current(sent):
            return  # a rebalance completed meanwhile; the next attempt checks the ownership
        action = action_for(ApiKey.OFFSET_COMMIT, code)
        if member.is_finishing_rebalance and action in (
            CoordinatorAction.REJOIN,
            CoordinatorAction.LOSE_GENERATION,
        ):
            return  # the join round has ended; the response to JoinGroup has the new generation
        self._send_event(CommitRejected(code, sent.generation, sent.member_id))
        still_owned = all(tp in member.owned for tp in rejected)
        rejoining = member.state is MemberState.JOINING and action is not CoordinatorAction.FENCED
        if still_owned and (action is CoordinatorAction.REJOIN or rejoining):
            raise self._rebalance_error()
        raise CommitFailedError(
            f"commit failed for {describe(rejected)} with {error_name(code)}: the group continued "
            "without this consumer, and another member may own the partitions. Poll within "
            "max_poll_interval_ms, or set a lower max_poll_records",
            offsets=rejected,
        ) from error_for(ApiKey.OFFSET_COMMIT, code, self._group_id)

    def _epoch_rejected(
        self,
        code: int,
        sent: OffsetsSender,
        commit: Commit,
        rejected: OffsetsByPartition,
        now: float,
    ) -> None:
        """Raise the error for a rejected commit of a consumer group; return to retry it.

        A stale epoch is that of before a rebalance, or the member does not know the new one yet.
        Every other code ends the membership, which the next heartbeat shows.
        """
        if commit.rejected_since is None:
            commit.rejected_since = now
        is_current = self._is_current(sent)
        if is_current:
            self._send_event(EpochRejected(sent.generation))
        if code == ErrorCode.STALE_MEMBER_EPOCH or not is_current:
            waited = now - commit.rejected_since
            if waited < self._patience:
                return
            then = f"the coordinator rejected the member epoch for {in_seconds(waited)}"
        else:
            then = "another member may own the partitions"
        raise CommitFailedError(
            f"commit failed for {describe(rejected)} with {error_name(code)} in epoch "
            f"{sent.generation} of group {self._group_id!r}: {then}. Keep polling; the consumer "
            "rejoins if it was removed from the group",
            offsets=rejected,
        ) from error_for(ApiKey.OFFSET_COMMIT, code, self._group_id)

    def released_error(self, commit: Commit) -> CommitFailedError:
        """Return the error for partitions that were given up before their commit was accepted."""
        return CommitFailedError(
            f"commit failed for {describe(commit.released)}: this consumer gave the partitions up "
            f"before group {self._group_id!r} accepted the commit. Their next owner reads from the "
            "offsets committed before. Commit in on_partitions_revoked to avoid that",
            offsets=commit.released,
        )

    def _lost_error(self, offsets: OffsetsByPartition) -> CommitFailedError:
        """Return the error for offsets that may be older than those of another member since."""
        return CommitFailedError(
            f"commit failed for {describe(offsets)}: the consumer lost its membership of group "
            f"{self._group_id!r}, and another member may have owned the partitions since. Keep "
            "polling; the next commit uses the current positions",
            offsets=offsets,
        )

    def _rebalance_error(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"commit failed: group {self._group_id!r} is rebalancing and accepts no commits. Call "
            "poll() to complete the rebalance, then commit again"
        )
