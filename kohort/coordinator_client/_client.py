"""The driver: runs the commands of a membership machine and feeds the answers back."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from kohort.config import CLOSE_TIMEOUT, GroupConfig
from kohort.coordinator_client._cluster_view import (
    Cluster,
    LatestIds,
    Metadata,
    TopicHistory,
    known_topics,
)
from kohort.coordinator_client._command_runner import Steps
from kohort.coordinator_client._commands import (
    Cancel,
    Command,
    DropCoordinator,
    ReportFailure,
    StopDelivery,
    WatchTopics,
)
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client._events import (
    AssignmentMade,
    CoordinatorFound,
    Event,
    Failed,
    LeaveRequested,
    RejoinRequested,
    Subscribed,
    Tick,
    TopicsChanged,
)
from kohort.coordinator_client._group_callbacks import (
    GroupCallbacks,
    GroupSnapshot,
    GroupStatistics,
)
from kohort.coordinator_client._leaving import LEAVE_GRACE
from kohort.coordinator_client._member import MemberSettings, RebalanceRecord
from kohort.coordinator_client._membership import ClassicMembership
from kohort.coordinator_client._offsets import OffsetManager
from kohort.coordinator_client.assignors import (
    ClusterTopics,
    PartitionAssignor,
    RebalanceProtocol,
    common_protocol,
)
from kohort.errors import GroupError, KafkaError, KafkaTimeoutError
from kohort.transport import Backoff, in_seconds, start_soon, weak_callback
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

logger = logging.getLogger(__name__)


class CoordinatorClient:
    """A consumer's part in one group: membership and offsets.

    Everything is called from the event loop that :meth:`run` runs in. ``config.group_id`` must be
    set. ``rack`` is told to the leader's assignor (KIP-881). ``require_stable``: wait with
    committed offsets until open transactions on them are decided. ``on_group_topics`` is called
    when :attr:`group_topics` changes.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: GroupConfig,
        assignors: Sequence[PartitionAssignor],
        host: GroupCallbacks,
        *,
        rng: random.Random | None = None,
        rack: str | None = None,
        require_stable: bool = True,
        on_group_topics: Callable[[frozenset[str]], None] | None = None,
        history: TopicHistory | None = None,
    ) -> None:
        if config.group_id is None:
            raise ValueError("a CoordinatorClient needs a group_id")
        rng = rng or random.Random()
        cooperative = common_protocol(assignors) is RebalanceProtocol.COOPERATIVE
        backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._cluster = cluster
        self._config = config
        self._host = host
        self._on_group_topics = on_group_topics
        self._machine = ClassicMembership(
            MemberSettings(
                group_id=config.group_id,
                protocols=tuple(assignor.name for assignor in assignors),
                cooperative=cooperative,
                static=config.group_instance_id is not None,
                heartbeat_interval=config.heartbeat_interval_ms / 1000,
                session_timeout=config.session_timeout_ms / 1000,
                max_poll_interval=config.max_poll_interval_ms / 1000,
                backoff=backoff,
            ),
            rng,
        )
        self._link = CoordinatorConnection(
            cluster,
            config.group_id,
            backoff,
            rng,
            request_timeout=config.request_timeout_ms / 1000,
        )
        feed = weak_callback(self._feed)
        self._link.on_found = lambda: feed(CoordinatorFound())
        self._steps = Steps(
            cluster, self._link, config, assignors, host, cooperative=cooperative, rack=rack
        )
        self._offsets = OffsetManager(
            cluster,
            self._link,
            config,
            self._machine,
            feed,
            backoff,
            rng,
            require_stable=require_stable,
            history=history or LatestIds(cluster),
        )
        self._tasks: TaskGroup | None = None
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._events: deque[Event] = deque()
        self._feeding = False
        self._early: list[Command] = []
        self._changed = anyio.Event()
        self._broken = False
        self.confirmed_until = math.inf
        """Until when the partitions cannot be another member's already; readable from any thread.

        After that the session may have ended at the coordinator: nothing of them should be handed
        out before a heartbeat was answered. ``host.membership_confirmed()`` tells of that.
        """
        self._watched: frozenset[str] = frozenset()
        self._last_known = ClusterTopics({})

    # --- for the engine -------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. Never raises: what cannot be mended goes to host.group_failed()."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                early, self._early = self._early, []
                for command in early:
                    self._execute(command)
                while True:
                    changed = self._changed
                    deadline = self._machine.next_deadline()
                    with anyio.CancelScope(deadline=math.inf if deadline is None else deadline):
                        await changed.wait()
                    self._feed(Tick(self._host.last_poll()))
        except Exception as error:  # a defect of kohort's or of the host's
            self._break(error)
        finally:
            self._tasks = None
            self._changed.set()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member of the group for these topics, in place of any others; none is allowed."""
        self._feed(Subscribed(frozenset(topics)))

    async def unsubscribe(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Give up all partitions and leave; as :meth:`leave`."""
        await self.leave("the consumer unsubscribed", timeout)

    async def leave(
        self, reason: str, timeout: float = CLOSE_TIMEOUT, *, leave_group: bool | None = None
    ) -> None:
        """Call the listener for what is owned, then leave the group within ``timeout`` seconds.

        ``leave_group`` False: do not tell the coordinator, so that a restart finds its partitions;
        the default for a static member, and no other. Raises KafkaTimeoutError if a callback is
        still running then; the leaving goes on.
        """
        if leave_group is None:
            leave_group = self._config.group_instance_id is None
        self._feed(LeaveRequested(reason, anyio.current_time() + timeout, leave_group))
        with anyio.move_on_after(timeout + LEAVE_GRACE):
            while self._machine.leave is not None and self._tasks is not None:
                await self._changed.wait()
            return
        raise KafkaTimeoutError(f"leaving the group took longer than {in_seconds(timeout)}")

    def request_rejoin(self, reason: str) -> None:
        """Have a rebalance (KIP-568), unless one is under way already."""
        self._feed(RejoinRequested(reason))

    def metadata_changed(self, metadata: Metadata | None = None) -> None:
        """The cluster's metadata changed: the leader looks whether its assignment still fits.

        A topic that the metadata says nothing about counts as unchanged.
        """
        if not self._watched:
            return
        metadata = metadata or self._cluster.metadata
        before = self._last_known
        told = self._watched & metadata.topics.keys()
        now = known_topics(metadata, told, racks=bool(before.racks))
        old_counts = {name: n for name, n in before.partitions.items() if name not in told}
        old_racks = {tp: racks for tp, racks in before.racks.items() if tp.topic not in told}
        self._last_known = ClusterTopics(
            {**old_counts, **now.partitions}, {**old_racks, **now.racks}
        )
        self._feed(TopicsChanged(self._last_known, frozenset(told)))

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float | None = None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit offsets; see :meth:`OffsetManager.commit` for the errors."""
        await self._offsets.commit(offsets, timeout, ids=ids)

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,
        *,
        refused: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; see :meth:`OffsetManager.committed`."""
        return await self._offsets.committed(partitions, timeout, refused=refused)

    def generation(self) -> GroupSnapshot:
        """The membership as it is now; no I/O."""
        machine = self._machine
        return GroupSnapshot(
            generation_id=machine.generation,
            member_id=machine.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol=machine.protocol,
            state=machine.state.value,
            coordinator=self._link.node,
            owned=machine.owned,
        )

    def activity(self) -> GroupStatistics:
        """What the membership did so far; no I/O."""
        machine = self._machine
        return GroupStatistics(
            reason=machine.join_reason,
            join_obstruction=self._link.problem or machine.join_obstruction,
            last_failure=machine.last_failure,
            missing_right=machine.missing_right,
            fenced=machine.fenced,
            leads=machine.leading,
            rebalances=machine.rebalances,
            rebalance_seconds=machine.rebalance_seconds,
            rebalance_longest=machine.rebalance_longest,
            heartbeats=machine.heartbeats.count,
            last_heartbeat=machine.heartbeats.last,
        )

    @property
    def rebalance_flagged(self) -> bool:
        """The membership waits for the caller to be inside poll()."""
        return self._machine.rebalance_flagged

    @property
    def group_topics(self) -> frozenset[str]:
        """As the leader: the topics of all members, which the metadata should cover."""
        return self._watched

    @property
    def rebalances(self) -> tuple[RebalanceRecord, ...]:
        """The last rebalances, the latest at the end."""
        return tuple(self._machine.history)

    # --- events in, commands out ----------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        self._events.append(event)
        if self._feeding or self._broken:
            return
        self._feeding = True
        try:
            while self._events:
                now = anyio.current_time()
                for command in self._machine.handle(self._events.popleft(), now):
                    self._execute(command)
                self._confirm()
        except Exception as error:  # a defect: the membership cannot be trusted any more
            self._break(error)
        finally:
            self._feeding = False
            # A new event each time: leave() may look again before run() does.
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

    def _confirm(self) -> None:
        before, self.confirmed_until = self.confirmed_until, self._machine.confirmed_until
        if before <= anyio.current_time() < self.confirmed_until:
            self._host.membership_confirmed()

    def _break(self, error: Exception) -> None:
        logger.error("the group's state machine broke", exc_info=error)
        self._broken = True
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
        failure = GroupError(f"the membership broke down, close this consumer: {error!r}")
        failure.__cause__ = error
        self._host.group_failed(failure)

    def _execute(self, command: Command) -> None:
        match command:
            case Cancel(token):
                scope = self._scopes.pop(token, None)
                if scope is not None:
                    scope.cancel()
            case DropCoordinator(reason):
                self._link.drop(reason)
            case WatchTopics(topics):
                self._watch(topics)
            case StopDelivery(partitions):
                self._host.stop_delivery(partitions)
            case ReportFailure(error):
                self._host.group_failed(error)
            case _ if self._tasks is None:
                self._early.append(command)
            case _:
                scope = self._scopes[command.token] = anyio.CancelScope()
                start_soon(self._tasks, self._perform, command, command.token, scope)

    async def _perform(self, command: Command, token: int, scope: anyio.CancelScope) -> None:
        event: Event | None = None
        with scope:
            try:
                event = await self._steps.take(command)
            except KafkaError as error:
                event = Failed(token, error)
            except Exception as error:
                logger.exception("a step of the membership failed: %s", type(command).__name__)
                event = Failed(token, error)
        self._scopes.pop(token, None)
        if event is None or scope.cancel_called:
            return
        self._feed(event)
        if isinstance(event, AssignmentMade):
            self._last_known = event.topics
            self.metadata_changed()  # it may have changed while the assignor ran

    def _watch(self, topics: frozenset[str]) -> None:
        self._watched = topics
        if topics:
            self.metadata_changed()
        else:
            self._last_known = ClusterTopics({})
        if self._on_group_topics is not None:
            self._on_group_topics(topics)
