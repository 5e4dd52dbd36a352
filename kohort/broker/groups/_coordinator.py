"""The group coordinator of one broker: passes requests and timeouts to groups, runs their effects.

Its only storage is ``__consumer_offsets``. It keeps the groups of the partitions that its broker
leads. It loads them from the log when its broker becomes the leader, and drops them after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import anyio

from kohort.broker._hashes import coordinator_partition
from kohort.broker.groups._environment import Append, GroupEnvironment, TimerKey
from kohort.broker.groups._errors import GroupRequestError, heartbeat_error
from kohort.broker.groups._expiration import expire, next_expiration
from kohort.broker.groups._loading import load_groups
from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups._offsets import (
    OffsetToCommit,
    append_offset_tombstones,
    commit,
    delete_offsets,
)
from kohort.broker.groups._steering import assign, rebalance
from kohort.broker.groups._subscribed import CONSUMER_PROTOCOL_TYPE, is_subscribed
from kohort.broker.groups._transactional import (
    PendingOffsets,
    commit_pending,
    load_pending,
    validate_transactional_commit,
)
from kohort.broker.groups.classic import _requests
from kohort.broker.groups.classic._group import ClassicGroup, join_error
from kohort.broker.groups.classic._join import Caller, join
from kohort.broker.groups.classic._rebalance import (
    complete_join,
    on_initial_delay,
    on_session_timeout,
    on_sync_timeout,
)
from kohort.broker.groups.classic._records import append_empty_group, group_metadata_key
from kohort.broker.groups.classic._state import GroupState
from kohort.broker.groups.consumer._classic_members import heartbeat_classic, sync_classic
from kohort.broker.groups.consumer._group import AnyGroup, ConsumerGroup
from kohort.broker.groups.consumer._records import delete_group_records
from kohort.broker.groups.consumer._requests import ConsumerRequests
from kohort.broker.groups.consumer._validation import validate_heartbeat
from kohort.broker.groups.share._group import SESSION as SHARE_SESSION
from kohort.broker.groups.share._group import ShareGroup, StateTopic
from kohort.broker.groups.share._heartbeat import validate as validate_share_heartbeat
from kohort.broker.groups.share._records import load_share_groups
from kohort.broker.groups.share._requests import ShareRequests
from kohort.broker.groups.share._states import delete_states, forget_topic
from kohort.errors import ErrorCode
from kohort.logs import get_logger
from kohort.protocol import Buffer, Response
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)

logger = get_logger("kohort.testing")

PARTITIONS = 50
"""Number of partitions of ``__consumer_offsets``."""

GroupRecords = list[tuple[bytes, bytes | None]]
OpenRecords = Iterable[tuple[int, Buffer | None, Buffer | None, bool]]
"""(producer id, key, value, outdated) of transactions that have not ended."""


_EXPIRATION = TimerKey("", "expiration")


class _ParkedRequest:
    """A request whose response is sent now or later."""

    __slots__ = ("_event", "response")

    def __init__(self) -> None:
        self.response: Response | None = None
        self._event: anyio.Event | None = None

    def respond(self, response: Response) -> None:
        self.response = response
        if self._event is not None:
            self._event.set()

    async def wait(self) -> Response:
        if self.response is None:
            self._event = anyio.Event()
            await self._event.wait()
        assert self.response is not None
        return self.response


class GroupCoordinator:
    """The groups of one broker and the requests to them.

    ``append(partition, records)`` writes to ``__consumer_offsets``. ``changed()`` is called after
    changes of groups. The error for a group of another coordinator is NOT_COORDINATOR.
    """

    def __init__(
        self,
        env: GroupEnvironment,
        append: Callable[[int, GroupRecords], None],
        changed: Callable[[], None],
    ) -> None:
        self.groups: dict[str, AnyGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.partitions: set[int] = set()
        self.pending: PendingOffsets = PendingOffsets()
        self._env = env
        self._consumers = ConsumerRequests(self.groups, env)
        self.shares: ShareRequests = ShareRequests(self.share_groups, env)
        self._append = append
        self._changed = changed
        self._waiting_until = -math.inf
        self._wake = anyio.Event()
        self._checking_since = anyio.current_time()

    # Leadership

    def load(
        self,
        partition: int,
        records: Iterable[tuple[Buffer | None, Buffer | None]],
        open_records: OpenRecords = (),
    ) -> None:
        """Load the groups of a partition from its records."""
        records = list(records)
        self.partitions.add(partition)
        self.pending.remove_groups(lambda group_id: self._partition(group_id) == partition)
        self.groups.update(load_groups(records, self._env, anyio.current_time()))
        self.share_groups.update(load_share_groups(records, self._env, anyio.current_time()))
        load_pending(open_records, self.groups, self.pending, self._env)
        self._schedule_expiration(anyio.current_time())
        self._process()

    def unload(self, partition: int) -> None:
        """Drop the groups of a partition. Their members find the new coordinator and continue
        there.
        """
        self.partitions.discard(partition)
        self.pending.remove_groups(lambda group_id: self._partition(group_id) == partition)
        for group in [g for g in self.groups.values() if self._partition(g.group_id) == partition]:
            self._drop(group, ErrorCode.NOT_COORDINATOR)
        for group_id in [each for each in self.share_groups if self._partition(each) == partition]:
            self.share_groups.pop(group_id).stop_timers()
        self._process()

    def _drop(self, group: AnyGroup, error: ErrorCode) -> None:
        del self.groups[group.group_id]
        group.stop_timers()
        if isinstance(group, ConsumerGroup):
            return
        for member in group.members.values():
            group.fail_join(member, error_code=error, member_id=member.member_id)
            group.complete_sync(member, error)
        group.transition(GroupState.DEAD, anyio.current_time())

    def check(self, group_id: str) -> ErrorCode:
        """Return NONE if this is the coordinator of the group."""
        here = self._partition(group_id) in self.partitions
        return ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR

    def _check_member_request(self, group_id: str) -> ErrorCode:
        return self.check(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    @staticmethod
    def _partition(group_id: str) -> int:
        return coordinator_partition(group_id, PARTITIONS)

    # Requests of members

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat of the consumer protocol."""
        settings = self._env.group_settings(request.group_id)
        try:
            validate_heartbeat(request, caller.version, settings.consumer_assignors)
            error = self.check(request.group_id)
            if error is not ErrorCode.NONE:
                return ConsumerGroupHeartbeatResponse(error_code=error)
            if request.group_id in self.share_groups:
                raise GroupRequestError(
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    f"Group {request.group_id} is not a consumer group.",
                )
            response = self._consumers.heartbeat(request, caller, anyio.current_time())
        except GroupRequestError as refusal:
            return heartbeat_error(refusal)
        self._process()
        return response

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller
    ) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat of a member of a share group."""
        try:
            validate_share_heartbeat(request)
            error = self.check(request.group_id)
            if error is not ErrorCode.NONE:
                return ShareGroupHeartbeatResponse(error_code=error)
            if request.group_id in self.groups:
                raise GroupRequestError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group."
                )
            response = self.shares.heartbeat(request, caller, anyio.current_time())
        except GroupRequestError as refusal:
            return ShareGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.message
            )
        self._process()
        # As in Kafka, the response knows nothing of what the heartbeat initializes.
        self.shares.initialize(request.group_id)
        self._process()
        return response

    async def join(self, request: JoinGroupRequest, caller: Caller) -> JoinGroupResponse:
        """Handle JoinGroup; wait until the rebalance ends."""
        error = self._check_member_request(request.group_id)
        config = self._env.config
        if error is not ErrorCode.NONE:
            return join_error(error, request.member_id)
        timeout = request.session_timeout_ms
        if not config.min_session_timeout_ms <= timeout <= config.max_session_timeout_ms:
            return join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        if request.group_id in self.share_groups:
            return join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        group = self.groups.get(request.group_id)
        now = anyio.current_time()
        if isinstance(group, ConsumerGroup) and group.members:
            return self._join_consumer_group(group, request, caller, now)
        is_new = not isinstance(group, ClassicGroup)
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                return join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            if group is not None:
                group = self._consumers.make_classic(group)
            else:
                group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._env)
        parked = _ParkedRequest()
        with self._env.all_or_nothing():
            if is_new:
                append_empty_group(group, now)
            join(group, request, caller, parked, now)
        self._process()
        response = await parked.wait()
        assert isinstance(response, JoinGroupResponse)
        return response

    def _join_consumer_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now: float
    ) -> JoinGroupResponse:
        try:
            response = self._consumers.join(group, request, caller, now)
        except GroupRequestError as refusal:
            return join_error(refusal.code, "")
        self._process()
        return response

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Handle SyncGroup; wait until the leader has sent the assignment."""
        error = self._check_member_request(request.group_id)
        if error is not ErrorCode.NONE:
            return SyncGroupResponse(error_code=error)
        group = self.groups.get(request.group_id)
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            try:
                return sync_classic(group, request, anyio.current_time())
            except GroupRequestError as refusal:
                return SyncGroupResponse(error_code=refusal.code)
            finally:
                self._process()
        parked = _ParkedRequest()
        with self._env.all_or_nothing():
            _requests.sync(group, request, parked, anyio.current_time())
        self._process()
        response = await parked.wait()
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        error = self._check_member_request(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ConsumerGroup):
            try:
                return heartbeat_classic(group, request, anyio.current_time())
            except GroupRequestError as refusal:
                return refusal.code
            finally:
                self._process()
        error = _requests.heartbeat(group, request, anyio.current_time())
        self._process()
        return error

    def leave(
        self, group_id: str, members: Sequence[LeaveGroupRequest.MemberIdentity]
    ) -> tuple[ErrorCode, list[LeaveGroupResponse.MemberResponse]]:
        """Return an error for the whole request, and the result of each member."""
        error = self._check_member_request(group_id)
        if error is not ErrorCode.NONE:
            return error, []
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, [
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for member in members
            ]
        if isinstance(group, ConsumerGroup):
            responses = self._consumers.leave(group, members, anyio.current_time())
        else:
            with self._env.all_or_nothing():
                responses = _requests.leave(group, members, anyio.current_time())
        self._process()
        return ErrorCode.NONE, responses

    # Steps that a test demands

    def rebalance(self, group: AnyGroup) -> None:
        """Start a rebalance of a group of this coordinator."""
        with self._env.all_or_nothing():
            rebalance(group, anyio.current_time())
        self._process()

    def assign(self, group: AnyGroup, wanted: Mapping[str, PartitionSets]) -> None:
        """Give the members of a group of this coordinator exactly these partitions."""
        with self._env.all_or_nothing():
            assign(group, wanted, anyio.current_time())
        self._process()

    # Offsets and administration

    def commit(
        self, request: OffsetCommitRequest, offsets: Sequence[OffsetToCommit], version: int
    ) -> list[ErrorCode]:
        """Commit offsets; return one error code for each of them."""
        error = self.check(request.group_id)
        group = self.groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            if request.group_id in self.share_groups:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif request.generation_id_or_member_epoch >= 0:
                newer = version >= 9
                error = ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
            else:
                # Not a member: an admin, or a consumer with assign().
                group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._env)
        if group is None or error is not ErrorCode.NONE:
            return [error] * len(offsets)
        with self._env.all_or_nothing():
            errors = commit(group, request, offsets, anyio.current_time(), version)
        for offset, code in zip(offsets, errors, strict=True):
            if code is ErrorCode.NONE:
                self.pending.mark_outdated((group.group_id, offset.topic, offset.partition))
        self._process()
        return errors

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, offsets: Sequence[OffsetToCommit], version: int
    ) -> tuple[list[ErrorCode], GroupRecords]:
        """Return one error code for each offset, and the records to append in the transaction."""
        error = self.check(request.group_id)
        group = self.groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            if request.group_id in self.share_groups:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif request.generation_id_or_member_epoch >= 0:
                newer = version >= 6
                error = ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION
            else:
                group = self.groups[request.group_id] = ClassicGroup(request.group_id, self._env)
        if group is not None and error is ErrorCode.NONE:
            error = validate_transactional_commit(group, request, offsets, version)
        if group is None or error is not ErrorCode.NONE:
            return [error] * len(offsets), []
        now = anyio.current_time()
        return commit_pending(group, request.producer_id, offsets, self.pending, now)

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """Commit or discard the pending offsets of a transaction whose marker was written."""

        def belongs(group_id: str) -> bool:
            return self._partition(group_id) == partition

        for group_partition, pending in self.pending.pop_offsets(producer_id, belongs):
            group_id, topic, index = group_partition
            group = self.groups.get(group_id)
            if committed and group is not None:
                group.offsets[topic, index] = pending.offset
                self.pending.mark_outdated(group_partition, pending.order)
        self._schedule_expiration(anyio.current_time())
        self._process()
        self._changed()

    def delete_group(self, group_id: str) -> ErrorCode:
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            return error
        group = self.groups.get(group_id)
        share_group = self.share_groups.get(group_id)
        if share_group is not None:
            return self._delete_share_group(share_group)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state.value != GroupState.EMPTY.value:
            return ErrorCode.NON_EMPTY_GROUP
        with self._env.all_or_nothing():
            append_offset_tombstones(group, group.offsets)
            if isinstance(group, ConsumerGroup):
                delete_group_records(group)
            else:
                self._env.append(group_id, group_metadata_key(group_id), None)
        self.pending.remove_groups(group_id.__eq__)
        self._drop(group, ErrorCode.UNKNOWN_MEMBER_ID)
        self._process()
        return ErrorCode.NONE

    def _delete_share_group(self, group: ShareGroup) -> ErrorCode:
        if group.members:
            return ErrorCode.NON_EMPTY_GROUP
        with self._env.all_or_nothing():
            self.shares.delete(group)
        del self.share_groups[group.group_id]
        self._process()
        return ErrorCode.NONE

    def check_share_change(self, group_id: str) -> ErrorCode:
        """Return NONE if the starts of a share group may change: it has no members."""
        error = self._check_member_request(group_id)
        group = self.share_groups.get(group_id)
        if error is ErrorCode.NONE and group_id in self.groups:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif error is ErrorCode.NONE and group is not None and group.members:
            error = ErrorCode.NON_EMPTY_GROUP
        return error

    def delete_share_states(
        self, group: ShareGroup, topic_ids: Iterable[bytes]
    ) -> dict[bytes, ErrorCode]:
        """Delete the states of topics of a share group. Return the error of each of them."""
        errors = delete_states(group, topic_ids)
        self._process()
        return errors

    def set_share_starts(
        self,
        group_id: str,
        topics: Mapping[bytes, StateTopic],
        starts: Mapping[tuple[bytes, int], int],
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Set the starts of share-partitions. Return the error of each of them."""
        errors = self.shares.set_starts(group_id, topics, starts)
        self._process()
        return errors

    def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[tuple[str, int]]
    ) -> tuple[ErrorCode, set[tuple[str, int]]]:
        """Return an error for the whole request, and the partitions that members still consume."""
        error = self._check_member_request(group_id)
        group = self.groups.get(group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if group is None or error is not ErrorCode.NONE:
            return error, set()
        if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP, set()
        consumed = {
            topic_partition
            for topic_partition in topic_partitions
            if is_subscribed(group, topic_partition[0])
        }
        unused = [each for each in topic_partitions if each not in consumed]
        with self._env.all_or_nothing():
            delete_offsets(group, unused)
        for topic_partition in unused:
            self.pending.remove((group_id, *topic_partition))
        self._process()
        return ErrorCode.NONE, consumed

    def delete_topic_offsets(self, topic: str, topic_id: bytes = b"") -> None:
        """Delete all offsets of a deleted topic, and forget it in share groups."""
        for share_group in self.share_groups.values():
            forget_topic(share_group, topic_id)
        for group in list(self.groups.values()):
            with self._env.all_or_nothing():
                delete_offsets(group, [each for each in group.offsets if each[0] == topic])
        self.pending.remove_topic(topic)
        self._process()

    # Time

    async def run(self) -> None:
        """Wait for the groups' deadlines; ends by cancellation."""
        while True:
            deadline = self._env.timers.next_deadline()
            self._waiting_until = math.inf if deadline is None else deadline
            self._wake = anyio.Event()
            with anyio.CancelScope(deadline=self._waiting_until):
                await self._wake.wait()
            self._waiting_until = -math.inf
            self._process()

    def _process(self) -> None:
        """Run due timers, then the effects that the groups have appended, in their order."""
        now = anyio.current_time()
        for key in self._env.timers.pop_due(now):
            try:
                with self._env.all_or_nothing():
                    self._expire(key, now)
            except Exception:
                # It would end the task of the broker, and with it the whole cluster.
                logger.exception("[%s] the timer %s of %r failed", *key)
        effects = self._env.effects
        if effects:
            self._schedule_expiration(now)
            self._env.effects = []
            appends: dict[int, GroupRecords] = {}
            for effect in effects:
                if isinstance(effect, Append):
                    where = self._partition(effect.group_id)
                    appends.setdefault(where, []).append((effect.key, effect.value))
            for where, records in appends.items():
                self._append(where, records)
            for effect in effects:
                if not isinstance(effect, Append) and isinstance(effect.parked, _ParkedRequest):
                    effect.parked.respond(effect.response)
            self._changed()
        deadline = self._env.timers.next_deadline()
        if deadline is not None and deadline < self._waiting_until:
            self._wake.set()

    def _schedule_expiration(self, now: float, due: float = 0.0) -> None:
        """Schedule the next expiration of offsets, at a multiple of the check interval after
        ``due``.
        """
        interval = self._env.config.offsets_retention_check_interval_ms / 1000
        since = self._checking_since
        rounds = max(math.floor((now - since) / interval) + 1, math.ceil((due - since) / interval))
        at = since + rounds * interval
        if at < (self._env.timers.deadline(_EXPIRATION) or math.inf):
            self._env.timers.schedule(_EXPIRATION, at)

    def _expire_offsets(self, now: float) -> None:
        for group in list(self.groups.values()):
            try:
                with self._env.all_or_nothing():
                    is_expired = expire(group, self.pending, now)
            except Exception:
                logger.exception("[%s] the expiration of offsets failed", group.group_id)
                continue
            if is_expired:
                self._drop(group, ErrorCode.UNKNOWN_MEMBER_ID)
        soonest = min((next_expiration(group) for group in self.groups.values()), default=math.inf)
        if soonest < math.inf:
            self._schedule_expiration(now, soonest)

    def _expire(self, key: TimerKey, now: float) -> None:
        if key == _EXPIRATION:
            self._expire_offsets(now)
            return
        if key.kind == SHARE_SESSION:
            self.shares.on_timeout(key)
            return
        group = self.groups.get(key.group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.on_timeout(group, key, now)
            return
        if group is None:
            return
        if key.kind == "session":
            on_session_timeout(group, key.member_id, now)
        elif key.kind == "initial":
            on_initial_delay(group, now)
        elif key.kind == "join":
            complete_join(group, now)
        else:
            on_sync_timeout(group, now)
