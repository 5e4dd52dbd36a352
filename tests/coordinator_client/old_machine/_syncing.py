"""The second half of a rebalance: the leader's assignment, SyncGroup and the callbacks."""

from __future__ import annotations

import logging
import random

from kohort.coordinator_client._commands import (
    CallAssigned,
    CallRevoked,
    DropCoordinator,
    MakeAssignment,
    SyncGroup,
    WatchTopics,
)
from kohort.coordinator_client._consumer_protocol import (
    PROTOCOL_TYPE,
    Members,
    read_assignment,
    read_members,
)
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.coordinator_client._events import AssignmentMade
from kohort.coordinator_client._partition_text import describe
from kohort.coordinator_client._state import MemberState
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, finish
from kohort.errors import ErrorCode, InconsistentGroupProtocolError, MessageDecodeError, error_name
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse
from kohort.transport import escaped
from kohort.types import TopicPartition
from tests.coordinator_client.old_machine._joining import MANY_CHANGES, Joining
from tests.coordinator_client.old_machine._member import MemberSettings, RebalanceRecord, Role

logger = logging.getLogger(__name__)


class Syncing(Joining):
    """The steps from the response to JoinGroup to a stable assignment."""

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.is_leader = False
        """True if this member is the leader of its generation and watches the group's topics."""
        self.again: str | None = None
        """Reason for another rebalance directly after this one, or None."""
        self._dealt: ClusterTopics | None = None
        self._unknown: frozenset[str] = frozenset()
        """Topics of an earlier process's assignment that are not in the metadata yet."""
        self._target: frozenset[TopicPartition] = frozenset()
        self._user_data: bytes | None = None
        self._revoked: frozenset[TopicPartition] = frozenset()
        self._adopting = False

    # --- JoinGroup succeeded --------------------------------------------------------------------

    def joined(self, response: JoinGroupResponse, members: Members | None, now: float) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        self.heartbeats.start(now)
        self.again = None
        self.stop_leading()
        kind, protocol = response.protocol_type, response.protocol_name
        if kind not in (None, PROTOCOL_TYPE) or protocol not in self.settings.protocols:
            self._disagree(f"the group uses protocol {kind or PROTOCOL_TYPE}/{protocol}", now)
            return
        self.protocol = protocol
        if response.leader != response.member_id:
            self._send_sync({})
            return
        if members is None:
            members = finish(read_members(response, self.settings.group_id))
        self.is_leader = True
        topics = frozenset(topic for said in members.values() for topic in said.topics)
        self.emit(WatchTopics(topics))
        if response.skip_assignment:  # a static leader restarted, so the assignment stays (KIP-814)
            self._unknown = topics
            self._send_sync({})
            return
        self.move(MemberState.ASSIGNING, f"leader of generation {self.generation}")
        self.emit(MakeAssignment(self.start(Role.ASSIGN), protocol, members))

    def _disagree(self, why: str, now: float) -> None:
        offered = ", ".join(self.settings.protocols)
        error = InconsistentGroupProtocolError(
            f"cannot join group {self.settings.group_id!r}: {escaped(why)}, but this member offers "
            f"{offered}. Set one common assignor for all members in partition_assignment_strategy"
        )
        self.fail(error, now, leave=True)

    def stop_leading(self) -> None:
        if self.is_leader:
            self.is_leader = False
            self._dealt, self._unknown = None, frozenset()
            self.emit(WatchTopics(frozenset()))

    def assignment_made(self, event: AssignmentMade) -> None:
        self._dealt, self._unknown = event.topics, frozenset()
        self._send_sync(dict(event.assignments))

    def topics_changed(
        self, topics: ClusterTopics, covered: frozenset[str] | None, now: float
    ) -> None:
        """Start a rebalance on the leader if the topics differ from those of its assignment."""
        if not self.is_leader:
            return
        dealt, self._dealt = self._dealt, topics
        first = self._unknown if covered is None else self._unknown & covered
        if first:
            # A restarted static leader learns which partitions its group's assignment covers.
            self._unknown -= first
            dealt, topics = dealt and _without(dealt, first), _without(topics, first)
        if dealt is None or dealt == topics:
            return
        names = dealt.partitions.keys() | topics.partitions.keys()
        changes = [
            f"{escaped(name)} {dealt.partitions.get(name, 0)} -> {topics.partitions.get(name, 0)}"
            for name in sorted(names)
            if dealt.partitions.get(name, 0) != topics.partitions.get(name, 0)
        ]
        self.request_rebalance(
            f"partitions changed: {', '.join(changes[:MANY_CHANGES]) or 'racks'}", now
        )

    def request_rebalance(self, reason: str, now: float) -> None:
        """Start a rebalance, or another one after the one in progress."""
        match self.state:
            case MemberState.STABLE:
                self.rejoin(reason, now)
            case MemberState.ASSIGNING | MemberState.SYNCING | MemberState.RECONCILING:
                self.again = reason
            case _:
                pass  # a rebalance is in progress, or there is no membership

    # --- SyncGroup ------------------------------------------------------------------------------

    def _send_sync(self, assignments: dict[str, Assignment]) -> None:
        self.move(MemberState.SYNCING, f"generation {self.generation}")
        self.emit(
            SyncGroup(
                token=self.start(Role.SYNC),
                member_id=self.member_id,
                generation=self.generation,
                protocol=self.protocol or "",
                assignments=assignments,
            )
        )

    def sync_answered(self, response: SyncGroupResponse, now: float) -> None:
        code = response.error_code
        words = f"SyncGroup returned {error_name(code)}"
        match action_for(ApiKey.SYNC_GROUP, code):
            case CoordinatorAction.PROCEED:
                self._synced(response, now)
            case CoordinatorAction.REJOIN:
                self.restart("the group began another rebalance", now)
            case CoordinatorAction.REDISCOVER:
                self.emit(DropCoordinator(words))
                self.restart(words, now, wait=True)
            case CoordinatorAction.LOSE_MEMBER:
                self.lose(words, now)
            case CoordinatorAction.LOSE_GENERATION:
                self.lose(words, now, keep_member_id=True)
            case CoordinatorAction.FENCED | CoordinatorAction.FAIL:
                inconsistent = code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                self.fail(
                    error_for(ApiKey.SYNC_GROUP, code, self.settings.group_id),
                    now,
                    leave=inconsistent,
                )
            case _:
                self.restart(words, now, wait=True)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        kind, protocol = response.protocol_type, response.protocol_name
        if kind not in (None, PROTOCOL_TYPE) or protocol not in (None, self.protocol):
            self._disagree(f"the group uses protocol {kind}/{protocol}", now)
            return
        try:
            given = read_assignment(response.assignment)
        except MessageDecodeError as error:
            self.fail(error, now, leave=True)
            return
        wanted = self.topics or frozenset()
        strange = frozenset(tp for tp in given.partitions if tp.topic not in wanted)
        if strange and wanted != self.joined_topics:
            self.restart("the subscription changed during the rebalance", now)
            return
        if strange:
            logger.warning(
                "[%s] ignored %s, which the leader assigned without a subscription to the topic",
                self.settings.group_id,
                describe(strange),
            )
        self._target = frozenset(given.partitions) - strange
        self._user_data = given.user_data
        self._revoked = frozenset()
        self.move(MemberState.RECONCILING, f"assigned {describe(self._target)}")
        self.await_poll()

    # --- the callbacks --------------------------------------------------------------------------

    def reconcile(self, now: float) -> None:
        """Revoke partitions first, then add the new ones. The caller is inside poll()."""
        if self.began_at is None:
            self.began_at, self.before = now, self.owned
        self._adopting = False
        self._revoked = self.owned - self._target
        if self._revoked:
            self.owned_after = self.owned - self._revoked
            self.emit(CallRevoked(self.start(Role.CALLBACK), self._revoked))
        else:
            self._adopt()

    def _adopt(self) -> None:
        self._adopting = True
        added = self._target - self.owned
        self.owned = self.owned_after = self._target
        self.emit(
            CallAssigned(
                token=self.start(Role.CALLBACK),
                added=added,
                assignment=self._target,
                protocol=self.protocol or "",
                generation=self.generation,
                member_id=self.member_id,
                user_data=self._user_data,
            )
        )

    def reconciled(self, now: float) -> None:
        """Continue after a callback that followed SyncGroup."""
        if not self.in_generation:
            self.rejoin(self.join_reason, now)
            return
        if not self._adopting:
            self._adopt()
            return
        self._record(now)
        if self._revoked:
            # A second rebalance assigns the revoked partitions. It does not wait for poll().
            self.due_at = self.began_at = now
            self.before = self.owned
            self.restart(f"revoked {describe(self._revoked)}", now)
            return
        again, self.again = self.again, None
        self.move(MemberState.STABLE, f"generation {self.generation}")
        if self.topics != self.joined_topics:
            again = self.subscription_change()
        if again is not None:
            self.rejoin(again, now)

    def _record(self, now: float) -> None:
        """Log the rebalance and add it to the history."""
        began = now if self.began_at is None else self.began_at
        record = RebalanceRecord(
            at=now,
            reason=self.join_reason,
            generation=self.generation,
            protocol=self.protocol or "",
            gained=self.owned - self.before,
            lost=self.before - self.owned,
            assignment=self.owned,
            seconds=now - began,
            waited=max(0.0, began - self.due_at),
        )
        self.remember(record)
        self.settled()
        logger.info(
            "[%s] rebalanced in %.3f s%s: generation %d, %s%s, gained %s, lost %s, now %d "
            "partitions. Reason: %s",
            self.settings.group_id,
            record.seconds,
            f" ({record.waited:.3f} s after it was due)" if record.waited >= 0.001 else "",
            record.generation,
            record.protocol,
            ", leader" if self.is_leader else "",
            describe(record.gained),
            describe(record.lost),
            len(record.assignment),
            escaped(record.reason),
        )


def _without(known: ClusterTopics, names: frozenset[str]) -> ClusterTopics:
    """Return the topics without those of these names."""
    return ClusterTopics(
        {name: count for name, count in known.partitions.items() if name not in names},
        {tp: racks for tp, racks in known.racks.items() if tp.topic not in names},
    )
