"""The driver of the membership: it runs the commands and handles the results as events."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from kohort.config import CLOSE_TIMEOUT, GroupConfig
from kohort.coordinator_client._assignment_cause import CauseLookup
from kohort.coordinator_client._cluster_view import (
    GroupCluster,
    LatestIds,
    MetadataView,
    TopicIdHistory,
)
from kohort.coordinator_client._command_runner import CommandRunner
from kohort.coordinator_client._coordinator import (
    CoordinatorConnection,
    RequestForm,
    send_supported,
)
from kohort.coordinator_client._described_group import AssignmentCause
from kohort.coordinator_client._memberships import MembershipFactory, choice_of
from kohort.coordinator_client._requests import consumer_heartbeat_forms, leave_forms
from kohort.coordinator_client._watched_topics import BrokerRacks, WatchedTopics
from kohort.coordinator_client.assignors import (
    PartitionAssignor,
    RebalanceProtocol,
    common_protocol,
)
from kohort.coordinator_client.consumer._member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kohort.coordinator_client.machine._commands import (
    CallAssigned,
    Cancel,
    Command,
    ConsumerHeartbeat,
    DropCoordinator,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    ReportFailure,
    ResumeDelivery,
    StopDelivery,
    SyncGroup,
    WatchTopics,
)
from kohort.coordinator_client.machine._events import (
    AssignmentDescribed,
    AssignmentMade,
    Choice,
    CommandFailed,
    CoordinatorFound,
    Event,
    LeaveRequested,
    NoneLeft,
    RejoinRequested,
    Subscribed,
    Tick,
)
from kohort.coordinator_client.machine._group_callbacks import (
    GroupCallbacks,
    GroupStatistics,
    MembershipSnapshot,
)
from kohort.coordinator_client.machine._leaving_steps import LEAVE_MIN_SECONDS
from kohort.coordinator_client.machine._member import NO_GENERATION
from kohort.coordinator_client.machine._pending_commands import Role
from kohort.coordinator_client.machine._rebalance_history import RebalanceRecord
from kohort.coordinator_client.machine._state import MemberState
from kohort.coordinator_client.offsets._offsets import OffsetManager
from kohort.errors import GroupError, KafkaError, KafkaTimeoutError
from kohort.logs import get_logger
from kohort.transport import (
    SYSTEM_RNG,
    Backoff,
    TaskSignal,
    in_seconds,
    start_soon,
    weak_callback,
)
from kohort.types import OffsetAndMetadata, RebalanceCause, RebalanceContext, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = get_logger(__name__)

FIRST_GENERATION = 1
FIRST_EPOCH = 2
"""Generation of a new group, and the latest epoch of its first member, which some brokers count
from 1. Such a group most likely has no committed offsets."""


class CoordinatorClient:
    """The membership and the offsets of one consumer in one group.

    Call everything from the event loop that runs :meth:`run`. ``config.group_id`` must be set.
    ``rng`` makes jitter predictable. Only one whose attribute ``names_members`` is true also makes
    the member ids predictable, because members with one id fence each other. With
    ``require_stable``, reads of committed offsets wait until open transactions on them are decided.
    ``on_group_topics`` is called when :attr:`group_topics` changes.
    """

    def __init__(
        self,
        cluster: GroupCluster,
        config: GroupConfig,
        assignors: Sequence[PartitionAssignor],
        callbacks: GroupCallbacks,
        *,
        rng: random.Random | None = None,
        require_stable: bool = True,
        on_group_topics: Callable[[frozenset[str]], None] | None = None,
        history: TopicIdHistory | None = None,
    ) -> None:
        if config.group_id is None:
            raise ValueError("CoordinatorClient requires config.group_id")
        id_source = rng if getattr(rng, "names_members", False) else None
        rng = rng or SYSTEM_RNG
        cooperative = common_protocol(assignors) is RebalanceProtocol.COOPERATIVE
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._config = config
        self._callbacks = callbacks
        membership = MembershipFactory(config, assignors, backoff, rng, id_source).make()
        self._membership = membership
        self._coordinator = CoordinatorConnection(
            cluster,
            config.group_id,
            backoff,
            rng,
            request_timeout=config.request_timeout_ms / 1000,
        )
        self._cause = CauseLookup(
            self._coordinator, config.group_id, config.request_timeout_ms / 1000
        )
        handle = weak_callback(self._handle)
        history = history or LatestIds(cluster)
        self._coordinator.on_found = lambda: handle(CoordinatorFound())
        racks = BrokerRacks()
        self._runner = CommandRunner(
            cluster,
            self._coordinator,
            config,
            assignors,
            callbacks,
            lambda: membership.withheld,
            racks,
            cooperative=cooperative,
        )
        self._offsets = OffsetManager(
            cluster,
            self._coordinator,
            config,
            self._membership,
            handle,
            lambda attempt: backoff.delay(attempt, rng),
            require_stable=require_stable,
            history=history,
        )
        self._tasks: TaskGroup | None = None
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._events: deque[Event] = deque()
        self._is_handling = False
        self._queued_commands: list[Command] = []
        self._expected: frozenset[TopicPartition] = frozenset()
        """The partitions that the leader of a new group has assigned to itself in SyncGroup."""
        self._changed = TaskSignal()
        self._timer: anyio.CancelScope | None = None
        """Scope of :meth:`run` while it waits, whose deadline is the time of its next step."""
        self._first_partitions: Collection[TopicPartition] = ()
        """Partitions of :meth:`check_first_partitions` that :meth:`run` has not taken yet."""
        self._has_failed = False
        self.confirmed_until: float = math.inf
        """The time until which no other member can own the partitions; readable from any thread.

        After that the session may have expired at the coordinator. The consumer must not deliver
        records until a heartbeat succeeds, which calls ``callbacks.membership_confirmed()``.
        """
        self._watched = WatchedTopics(cluster, history, on_group_topics, racks)

    # --- for the engine -------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. Report errors through ``callbacks.group_failed()``, never raise."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                queued, self._queued_commands = self._queued_commands, []
                for command in queued:
                    self._execute(command)
                while True:
                    with anyio.CancelScope(deadline=self._next_deadline()) as self._timer:
                        await self._changed.wait()
                    self._timer = None
                    self._handle(Tick(self._callbacks.last_poll()))
                    if self._cause.begin(anyio.current_time()):
                        start_soon(tasks, self._cause.look_up)
                    if self._first_partitions:
                        partitions, self._first_partitions = self._first_partitions, ()
                        start_soon(tasks, self._check_first_partitions, partitions)
        except Exception as error:  # a bug in kohort
            self._fail(error)
        finally:
            self._tasks = self._timer = None
            self._changed.notify()

    def _next_deadline(self) -> float:
        deadline = self._membership.next_deadline()
        return self._cause.deadline if deadline is None else min(deadline, self._cause.deadline)

    def subscribe(self, topics: Iterable[str], regex: str = "") -> None:
        """Replace the subscribed topics and join the group. An empty set is allowed.

        ``regex`` is a pattern that the brokers evaluate, for a consumer group only.
        """
        self._handle(Subscribed(frozenset(topics), regex))

    async def unsubscribe(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Leave the group as :meth:`leave` does, with a fixed reason."""
        await self.leave("the consumer unsubscribed", timeout, cause="unsubscribed")

    async def leave(
        self,
        reason: str,
        timeout: float = CLOSE_TIMEOUT,
        *,
        leave_group: bool | None = None,
        cause: RebalanceCause = "closed",
    ) -> None:
        """Call the listener for the owned partitions, then leave within ``timeout`` seconds.

        ``leave_group=False`` sends no LeaveGroup, so that a restarted member gets its partitions
        back. It is the default for static members only. Raise KafkaTimeoutError if a callback still
        runs after the timeout. The member then leaves when the callback ends.
        """
        if leave_group is None:
            leave_group = self._config.group_instance_id is None
        self._handle(LeaveRequested(reason, anyio.current_time() + timeout, leave_group, cause))
        with anyio.move_on_after(timeout + LEAVE_MIN_SECONDS):
            while self._membership.leave is not None and self._tasks is not None:
                await self._changed.wait()
            return
        raise KafkaTimeoutError(
            f"leaving group {self._config.group_id!r} did not complete within "
            f"{in_seconds(timeout)}: a rebalance callback is still running"
        )

    async def leave_at_once(
        self,
        seconds: float,
        send: Callable[..., Awaitable[Any]] | None = None,
        *,
        leave_group: bool | None = None,
    ) -> None:
        """Leave the group without a callback, a commit or a retry, and end this object.

        ``leave_group`` is as for :meth:`leave`, which may have begun. A member of a consumer group
        that is static and stays sends that it will return. Other members that stay, or have no
        coordinator, send nothing. ``send`` replaces the cluster's request() for a client that does
        not run. Raises what it raises.
        """
        member, self._has_failed = self._membership, True
        self.confirmed_until = -math.inf  # no more records are delivered
        node, now = self._coordinator.node, anyio.current_time()
        is_static = self._config.group_instance_id is not None
        if member.leave is not None:
            leave_group = member.leave.leave_group
        elif leave_group is None:
            leave_group = not is_static
        if not leave_group and not (is_static and member.uses_epochs):
            return
        if node is None or not member.member_id or member.state is MemberState.UNSUBSCRIBED:
            return
        if Role.LEAVE in member.outstanding:
            # A coordinator that has not responded in the time of leave() gets no second request.
            # After a callback that took this time, the request may not have been sent yet.
            last_until = member.next_deadline()
            if last_until is not None and last_until < now + LEAVE_MIN_SECONDS / 2:
                return
        forms: Sequence[RequestForm[Any]]
        if member.uses_epochs:
            epoch = LEAVE_EPOCH if leave_group else LEAVE_STATIC_EPOCH
            last = ConsumerHeartbeat(0, member.member_id, epoch, seconds)
            forms = consumer_heartbeat_forms(self._config, last)
        else:
            reason = member.leave.reason if member.leave else "the process or the event loop ended"
            forms = leave_forms(self._config, LeaveGroup(0, member.member_id, reason))
        if send is None:
            await self._coordinator.request(forms, timeout=seconds)
        else:
            await send_supported(forms, partial(send, node=node), seconds)

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance (KIP-568), unless one has begun and waits for JoinGroup."""
        self._handle(RejoinRequested(reason))

    def apply_metadata(self, metadata: MetadataView | None = None) -> None:
        """Check whether the assignment still fits the cluster's metadata.

        The leader of a classic group checks the topics of all members. A member of a consumer group
        checks the ids of its topics. A topic that the metadata does not contain counts as
        unchanged.
        """
        changed = self._watched.apply(metadata)
        if changed is not None:
            self._handle(changed)
        if self._membership.uses_epochs and self._membership.owned:
            self._handle(self._watched.current_ids(self._membership.owned))

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None = None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit offsets; :meth:`OffsetManager.commit` lists the errors."""
        await self._offsets.commit(offsets, timeout, ids=ids)

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,
        *,
        denied: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; see :meth:`OffsetManager.committed`."""
        return await self._offsets.committed(partitions, timeout, denied=denied)

    def snapshot(self) -> MembershipSnapshot:
        """Return the current membership without I/O."""
        membership = self._membership
        # Brokers reject offsets in a transaction with a member id and no generation.
        is_unjoined = membership.uses_epochs and membership.generation == NO_GENERATION
        return MembershipSnapshot(
            generation_id=membership.generation,
            member_id="" if is_unjoined else membership.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol=membership.protocol,
            state=membership.state.value,
            coordinator=self._coordinator.node,
            owned=membership.owned,
        )

    def statistics(self) -> GroupStatistics:
        """Return counts and times of the membership without I/O."""
        found = self._membership.statistics()
        lookup_failure = self._coordinator.lookup_failure
        return found._replace(join_obstruction=lookup_failure) if lookup_failure else found

    def rebalance_context(self, *, is_lost: bool) -> RebalanceContext:
        """Return the cause and the deadline of the callback that is due."""
        found, request = self._membership.statistics(), self._membership.leave
        if is_lost:
            return RebalanceContext(found.cause, found.reason, anyio.current_time())
        if request is not None:
            return RebalanceContext(request.cause, request.reason, request.deadline)
        timeout = self._config.rebalance_timeout_ms / 1000
        return RebalanceContext(found.cause, found.reason, found.asked_at + timeout)

    @property
    def offset_read_failure(self) -> str | None:
        """Why the committed offsets cannot be read at present, or None."""
        return self._offsets.read_failure

    @property
    def protocol_choice(self) -> Choice | None:
        """The group protocol and the reason for it, or None before the first join."""
        return choice_of(self._membership, self._config)

    @property
    def needs_poll(self) -> bool:
        """True if the membership waits for the caller to be inside poll()."""
        return self._membership.needs_poll

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """The assigned partitions that others may own, although this consumer is a member.

        They stay assigned until the callback that reports them as lost.
        """
        return self._membership.withheld - self._membership.owned

    @property
    def awaits_partitions_until(self) -> float:
        """The time until which a member without partitions may get its first ones.

        It is in the past for a member that has partitions, and for a classic one.
        """
        return self._membership.awaits_partitions_until

    def check_first_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to ask the coordinator whether other members get all these partitions.

        If so, :attr:`awaits_partitions_until` ends.
        """
        # A callback of the event loop starts no task. anyio would not know its library, if sniffio
        # is installed.
        self._first_partitions = partitions
        self._changed.notify()

    async def _check_first_partitions(self, partitions: Collection[TopicPartition]) -> None:
        member_id = self._membership.member_id
        if await self._cause.is_idle(partitions):
            self._handle(NoneLeft(member_id))

    @property
    def assignment_cause(self) -> AssignmentCause | None:
        """Why a stable member has no partitions or waits for some; None while it is unknown."""
        return self._cause.cause

    @property
    def group_topics(self) -> frozenset[str]:
        """The topics of all members, which the leader's metadata must cover; else empty."""
        return self._watched.topics

    @property
    def rebalances(self) -> tuple[RebalanceRecord, ...]:
        """The latest rebalances, oldest first."""
        return tuple(self._membership.history)

    # --- events in, commands out ----------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._events.append(event)
        if self._is_handling or self._has_failed:
            return
        self._is_handling = True
        was_leaving = self._membership.leave is not None
        try:
            while self._events:
                now = anyio.current_time()
                for command in self._membership.handle(self._events.popleft(), now):
                    self._execute(command)
                self._notify_if_confirmed()
                self._cause.note(self._membership, now)
        except Exception as error:  # a bug: the membership's state may be inconsistent
            self._fail(error)
        finally:
            self._is_handling = False
            if self._timer is not None and not self._has_failed:
                # run() sleeps on, which costs less than to wake it.
                self._timer.deadline = self._next_deadline()
            if was_leaving:
                self._changed.notify()

    def _notify_if_confirmed(self) -> None:
        before, self.confirmed_until = self.confirmed_until, self._membership.confirmed_until
        if before <= anyio.current_time() < self.confirmed_until:
            self._callbacks.membership_confirmed()

    def _fail(self, error: Exception) -> None:
        logger.error(
            "[%s] internal error in the group membership", self._config.group_id, exc_info=error
        )
        self._has_failed = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        failure = GroupError(
            f"internal error in kohort's membership of group {self._config.group_id!r}: {error!r}. "
            "Close this consumer and create a new one"
        )
        failure.__cause__ = error
        self._callbacks.group_failed(failure)

    def _execute(self, command: Command) -> None:
        match command:
            case Cancel(token):
                scope = self._scopes.pop(token, None)
                if scope is not None:
                    scope.cancel()
            case DropCoordinator(reason):
                self._coordinator.drop(reason)
            case WatchTopics(topics):
                self._watch(topics)
            case StopDelivery(partitions):
                self._callbacks.stop_delivery(partitions)
            case ResumeDelivery(partitions):
                self._callbacks.resume_delivery(partitions)
            case ReportFailure(error):
                self._callbacks.group_failed(error)
            case _ if self._tasks is None:
                self._queued_commands.append(command)
            case _:
                if isinstance(command, JoinGroup):
                    self._cause.note_join(command.token, anyio.current_time())
                self._look_ahead(command, self._tasks)
                scope = self._scopes[command.token] = anyio.CancelScope()
                start_soon(self._tasks, self._run_command, command, command.token, scope)

    def _look_ahead(self, command: Command, tasks: TaskGroup) -> None:
        """Let a member of a new group look up offsets before its first partitions are assigned.

        The leader knows its partitions before SyncGroup. This saves two round trips until its first
        record, and other members one. In later generations most partitions have committed offsets,
        so the other look-ups would be in vain. A static member returns in the same generation.
        """
        expected: frozenset[TopicPartition] = frozenset()
        first = FIRST_EPOCH if self._membership.uses_epochs else FIRST_GENERATION
        match command:
            case SyncGroup(_, member_id, generation, _, assigned) if member_id in assigned:
                if generation <= first:
                    expected = self._expected = frozenset(assigned[member_id].partitions)
            case CallAssigned(generation=generation):
                if generation <= first and self._config.group_instance_id is None:
                    expected = command.added - self._expected
                self._expected = frozenset()
            case _:
                return
        if expected:
            start_soon(tasks, self._callbacks.look_ahead, expected)

    async def _run_command(self, command: Command, token: int, scope: anyio.CancelScope) -> None:
        event: Event | None = None
        with scope:
            try:
                event = await self._runner.run(command)
            except KafkaError as error:
                event = CommandFailed(token, error)
            except Exception as error:
                logger.exception("[%s] %s failed", self._config.group_id, type(command).__name__)
                event = CommandFailed(token, error)
        self._scopes.pop(token, None)
        self._cause.note_joined(token)
        if event is None or scope.cancel_called:
            return
        if isinstance(event, AssignmentMade) and isinstance(command, MakeAssignment):
            self._cause.note_made(command, event, self._membership.member_id)
        self._handle(event)
        if isinstance(event, AssignmentMade | AssignmentDescribed) and event.topics is not None:
            self._watched.note_assigned(event.topics)
            self.apply_metadata()  # the metadata may have changed meanwhile

    def _watch(self, topics: frozenset[str]) -> None:
        self._watched.topics = topics
        if topics:
            self.apply_metadata()
        self._watched.notify()
