"""The requests of a rebalance, from JoinGroup over the leader's assignment to SyncGroup."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NoReturn

from kohort.coordinator_client.assignors import BUILT_IN, Assignment, finish
from kohort.coordinator_client.classic._embedded_protocol import (
    PROTOCOL_TYPE,
    Members,
    read_assignment,
    read_members,
)
from kohort.coordinator_client.classic._failures import MembershipFailures
from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._leadership import Leadership
from kohort.coordinator_client.classic._member import MemberData
from kohort.coordinator_client.machine._commands import (
    DropCoordinator,
    JoinGroup,
    MakeAssignment,
    SyncGroup,
)
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import (
    AssignmentMade,
    Event,
    ResponseReceived,
)
from kohort.coordinator_client.machine._failure_reports import error_of, is_final
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.machine._pending_commands import (
    PendingCommands,
    RebalanceStart,
    RebalanceSteps,
    Role,
    restart,
)
from kohort.coordinator_client.machine._state import MemberState
from kohort.errors import (
    AssignorError,
    ErrorCode,
    InconsistentGroupProtocolError,
    MessageDecodeError,
    ProtocolError,
    error_name,
)
from kohort.logs import get_logger
from kohort.protocol import ApiKey
from kohort.protocol.messages import JoinGroupResponse, SyncGroupResponse
from kohort.transport import escaped
from kohort.types import TopicPartition

logger = get_logger(__name__)

MISFITS = 3
"""Number of times in a row that a member rejoins because its assignment has unsubscribed topics."""
_ASSIGN_EVERYTHING = frozenset(assignor.name for assignor in BUILT_IN)
"""Assignors that assign all partitions. A user's assignor may leave some out."""


class GroupExchange:
    """The requests to the coordinator in a rebalance, and the rules for their error codes.

    Its steps raise Restarted for an error code or an error.
    """

    def __init__(
        self,
        member: MemberData,
        pending: PendingCommands,
        heartbeats: Heartbeats,
        leadership: Leadership,
        failures: MembershipFailures,
    ) -> None:
        self._member = member
        self._pending = pending
        self._heartbeats = heartbeats
        self._leadership = leadership
        self._failures = failures
        self._attempts = 0
        self._misfits = 0
        """Number of assignments in a row with topics without a subscription."""
        self._may_be_old = False
        """True if the assignment may be the one of the static member's former process."""

    def forget_attempts(self) -> None:
        """Begin to count retries from 0, after a complete rebalance."""
        self._attempts = 0

    # --- JoinGroup ------------------------------------------------------------------------------

    def join(
        self, start: RebalanceStart
    ) -> RebalanceSteps[tuple[JoinGroupResponse, Members | None]]:
        """Send JoinGroup until the member has a generation."""
        member, failures = self._member, self._failures
        if member.state is not MemberState.JOINING:
            member.cell.move(MemberState.JOINING, start.reason)
        if not start.needs_poll:
            yield from self._pause(start.pauses)
        while True:
            member.joined_topics = member.wanted
            self._may_be_old = member.settings.static and not member.member_id
            self._pending.emit(
                JoinGroup(
                    token=self._pending.start(Role.JOIN),
                    member_id=member.member_id,
                    generation=member.generation,
                    topics=member.joined_topics,
                    owned=member.owned,
                    reason=start.reason,
                )
            )
            match (yield None):
                case ResponseReceived(_, JoinGroupResponse() as response, members):
                    code = response.error_code
                    words = f"JoinGroup returned {error_name(code)}"
                    is_new_id = code == ErrorCode.MEMBER_ID_REQUIRED and bool(response.member_id)
                    failures.join_obstruction = words if code and not is_new_id else None
                    action = self._check(ApiKey.JOIN_GROUP, code, words)
                    if action is CoordinatorAction.PROCEED:
                        self._enter_generation(response)
                        return response, members
                    if is_new_id:
                        member.member_id = response.member_id
                    yield from self._pause(not is_new_id)
                case event:
                    error = self._retriable_error(event)
                    failures.join_obstruction = f"JoinGroup failed: {error}"
                    yield from self._pause(True)

    def _pause(self, pauses: bool) -> RebalanceSteps[None]:
        """Wait before a retry of JoinGroup. Only the first retry may be immediate."""
        self._attempts += 1
        if pauses or self._attempts > 1:
            yield self._pending.now + self._member.backoff(self._attempts - 1)

    def _enter_generation(self, response: JoinGroupResponse) -> None:
        member = self._member
        member.member_id, member.generation = response.member_id, response.generation_id
        if response.leader:  # a consumer group names no leader
            member.owned_generation = member.generation
        self._pending.forget(Role.HEARTBEAT)
        self._heartbeats.start(self._pending.now)
        self._leadership.stop()
        kind, protocol = response.protocol_type, response.protocol_name
        if kind not in (None, PROTOCOL_TYPE) or protocol not in member.settings.protocols:
            self._disagree(f"the group uses protocol {kind or PROTOCOL_TYPE}/{protocol}")
        member.protocol = protocol

    # --- the leader's assignment ----------------------------------------------------------------

    def assign(
        self, response: JoinGroupResponse, members: Members | None
    ) -> RebalanceSteps[Mapping[str, Assignment]]:
        """Run the assignor on the leader. A follower returns no assignments."""
        member = self._member
        if not response.leader:  # as in a consumer group
            self._leadership.start_without_leader(member.joined_topics)
        if response.leader != response.member_id:
            return {}
        if members is None:
            members = finish(read_members(response, member.settings.group_id))
        topics = frozenset(topic for each in members.values() for topic in each.topics)
        self._leadership.start(topics, keeps_assignment=response.skip_assignment)
        if response.skip_assignment:  # a static leader restarted, so the assignment stays (KIP-814)
            if member.protocol in _ASSIGN_EVERYTHING:  # to find partitions without an owner
                self._leadership.look_up_assignment()
            return {}
        member.cell.move(MemberState.ASSIGNING, f"leader of generation {member.generation}")
        token = self._pending.start(Role.ASSIGN)
        self._pending.emit(MakeAssignment(token, member.protocol or "", members))
        match (yield None):
            case AssignmentMade(_, assignments, assigned_topics):
                self._leadership.note_assigned(assigned_topics)
                return assignments
            case event:
                error = error_of(event)
        if isinstance(error, AssignorError) or is_final(error):
            self._fail(error, leave=True)
        restart(f"fetching the topics to assign failed: {error}", pauses=True)

    # --- SyncGroup ------------------------------------------------------------------------------

    def sync(self, assignments: Mapping[str, Assignment]) -> RebalanceSteps[Assignment]:
        """Send SyncGroup and return this member's assignment."""
        member = self._member
        member.cell.move(MemberState.SYNCING, f"generation {member.generation}")
        self._pending.emit(
            SyncGroup(
                token=self._pending.start(Role.SYNC),
                member_id=member.member_id,
                generation=member.generation,
                protocol=member.protocol or "",
                assignments=dict(assignments),
            )
        )
        match (yield None):
            case ResponseReceived(_, SyncGroupResponse() as response):
                words = f"SyncGroup returned {error_name(response.error_code)}"
                action = self._check(ApiKey.SYNC_GROUP, response.error_code, words)
                if action is CoordinatorAction.PROCEED:
                    return self._read_assignment(response)
                if action is CoordinatorAction.REJOIN:
                    # From here on, a consumer group (KIP-848) keeps this generation for as long as
                    # it revokes partitions of this member.
                    member.owned_generation = member.generation
                    restart("the group began another rebalance")
                restart(words, pauses=True)
            case event:
                restart(f"SyncGroup failed: {self._retriable_error(event)}", pauses=True)

    def _read_assignment(self, response: SyncGroupResponse) -> Assignment:
        member = self._member
        kind, protocol = response.protocol_type, response.protocol_name
        if kind not in (None, PROTOCOL_TYPE) or protocol not in (None, member.protocol):
            self._disagree(f"the group uses protocol {kind}/{protocol}")
        try:
            given = read_assignment(response.assignment)
        except MessageDecodeError as error:
            self._fail(error, leave=True)
        strange = frozenset(tp for tp in given.partitions if tp.topic not in member.wanted)
        if strange:
            self._reject_or_ignore(strange)
        else:
            self._misfits = 0
        kept = tuple(tp for tp in given.partitions if tp not in strange)
        self._watch_missing({tp.topic for tp in kept})
        return Assignment(kept, given.user_data)

    def _reject_or_ignore(self, strange: frozenset[TopicPartition]) -> None:
        """Rejoin because of partitions without a subscription, but not for ever.

        The coordinator gives a restarted static member the assignment of its former process. It
        compares the subscription only with that of a member that it knows, so the second JoinGroup
        begins a rebalance. A defect of the leader's assignor would return with each rebalance.
        """
        member, group = self._member, self._member.settings.group_id
        if member.wanted != member.joined_topics:
            restart("the subscription changed during the rebalance")
        self._misfits += 1
        if self._misfits <= MISFITS:
            restart(
                f"the assignment has {describe(strange)}, without a subscription to the topic",
                pauses=self._misfits > 1,
            )
        logger.warning(
            "[%s] ignored %s: the leader's assignor %s assigned the partitions %d times without a "
            "subscription to the topic. Check the assignor of the group's other members",
            group,
            describe(strange),
            member.protocol,
            self._misfits,
        )

    def _watch_missing(self, assigned: AbstractSet[str]) -> None:
        """Look for owners of the topics of which a restarted static member got nothing."""
        member = self._member
        is_incomplete = self._may_be_old and not member.wanted <= assigned
        if is_incomplete and member.protocol in _ASSIGN_EVERYTHING:
            self._leadership.start_after_restart(member.wanted)

    # --- errors ---------------------------------------------------------------------------------

    def _check(self, api: ApiKey, code: int, words: str) -> CoordinatorAction:
        """Return the action for an error code. Raise Restarted if it ends the membership."""
        action = action_for(api, code)
        match action:
            case CoordinatorAction.REDISCOVER:
                self._pending.emit(DropCoordinator(words))
            case CoordinatorAction.LOSE_MEMBER:
                self._failures.lose(words)
                restart(words)
            case CoordinatorAction.LOSE_GENERATION:
                self._failures.lose(words, keep_member_id=True)
                restart(words)
            case CoordinatorAction.FENCED | CoordinatorAction.FAIL:
                is_sync = api is ApiKey.SYNC_GROUP
                leave = is_sync and code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                self._fail(error_for(api, code, self._member.settings.group_id), leave=leave)
            case _:
                pass
        return action

    def _retriable_error(self, event: Event | None) -> Exception:
        """Return the error of a request. Raise Restarted if a retry does not fix it."""
        error = error_of(event)
        if is_final(error) or isinstance(error, ProtocolError):
            self._fail(error)
        return error

    def _disagree(self, why: str) -> NoReturn:
        settings = self._member.settings
        error = InconsistentGroupProtocolError(
            f"cannot join group {settings.group_id!r}: {escaped(why)}, but this member offers "
            f"{', '.join(settings.protocols)}. Set one common assignor for all members in "
            "partition_assignment_strategy"
        )
        self._fail(error, leave=True)

    def _fail(self, error: Exception, *, leave: bool = False) -> NoReturn:
        self._failures.fail(error, leave=leave)
        restart(str(error))
