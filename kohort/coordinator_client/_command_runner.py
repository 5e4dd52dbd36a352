"""The commands of the membership that wait for a response or a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kohort.config import GroupConfig
from kohort.coordinator_client import _requests
from kohort.coordinator_client._cluster_view import GroupCluster
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client._lookups import ProtocolLookup, described_assignment, names_of_ids
from kohort.coordinator_client._watched_topics import BrokerRacks, known_topics
from kohort.coordinator_client.assignors import (
    Assignment,
    PartitionAssignor,
    finish_in_slices,
    is_built_in,
)
from kohort.coordinator_client.auto._protocol_choice import (
    CLASSIC,
    choose_by_refusal,
    pattern_error,
)
from kohort.coordinator_client.classic._assignment_check import check_in_steps
from kohort.coordinator_client.classic._embedded_protocol import read_members, write_assignments
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    ChooseProtocol,
    Command,
    ConsumerHeartbeat,
    DescribeAssignment,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    ResolveTopics,
    SyncGroup,
)
from kohort.coordinator_client.machine._events import (
    AssignmentDescribed,
    AssignmentMade,
    CallbackDone,
    Event,
    PollEntered,
    ProtocolChosen,
    ResponseReceived,
    TopicsResolved,
)
from kohort.coordinator_client.machine._group_callbacks import GroupCallbacks
from kohort.errors import AssignorError, UnsupportedVersionError
from kohort.logs import get_logger
from kohort.protocol.messages import ConsumerGroupHeartbeatResponse, JoinGroupResponse
from kohort.types import ConsumerGroupMetadata, TopicPartition

logger = get_logger(__name__)

T = TypeVar("T")

JOIN_EXTRA_SECONDS = 5.0
"""Seconds added to the rebalance timeout for the coordinator's response to JoinGroup."""


class CommandRunner:
    """The runner of requests to the coordinator, of callbacks and of assignors."""

    def __init__(
        self,
        cluster: GroupCluster,
        coordinator: CoordinatorConnection,
        config: GroupConfig,
        assignors: Sequence[PartitionAssignor],
        callbacks: GroupCallbacks,
        withheld: Callable[[], frozenset[TopicPartition]],
        racks: BrokerRacks,
        *,
        cooperative: bool,
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._callbacks = callbacks
        self._withheld = withheld
        self._cooperative = cooperative
        self._racks = racks
        self._rack = config.client_rack or None
        self._lookup = ProtocolLookup(
            coordinator,
            config.group_id or "",
            config.request_timeout_ms / 1000,
            config.consumer_session_timeout_ms / 1000,
        )

    async def run(self, command: Command) -> Event:
        """Run a command and return the event that completes it. Raise the error that stops it."""
        config, callbacks = self._config, self._callbacks
        join_timeout = config.rebalance_timeout_ms / 1000 + JOIN_EXTRA_SECONDS
        match command:
            case JoinGroup(token):
                joined = await self._join(command, join_timeout)
                if joined.leader != joined.member_id:  # only the leader gets the members
                    return ResponseReceived(token, joined)
                members = await finish_in_slices(read_members(joined, config.group_id or ""))
                return ResponseReceived(token, joined, members)
            case SyncGroup(token):
                blobs: Mapping[str, bytes] = {}
                if command.assignments:  # those of the leader
                    blobs = await finish_in_slices(write_assignments(command.assignments))
                forms = _requests.sync_forms(config, command, blobs)
                synced = await self._coordinator.request(
                    forms, timeout=join_timeout, waits_for_members=True
                )
                return ResponseReceived(token, synced)
            case Heartbeat(token):
                beat = await self._coordinator.request(
                    _requests.heartbeat_forms(config, command), timeout=command.timeout
                )
                return ResponseReceived(token, beat)
            case ConsumerHeartbeat():
                return await self._consumer_heartbeat(command)
            case ChooseProtocol():
                return await self._choose_protocol(command)
            case ResolveTopics(token, ids):
                return TopicsResolved(token, await names_of_ids(self._cluster, ids))
            case LeaveGroup(token):
                left = await self._coordinator.request(
                    _requests.leave_forms(config, command), timeout=config.request_timeout_ms / 1000
                )
                return ResponseReceived(token, left)
            case MakeAssignment():
                return await self._assign(command)
            case DescribeAssignment(token, topics):
                described = await self._coordinator.request(
                    _requests.describe_forms(config), timeout=config.request_timeout_ms / 1000
                )
                return AssignmentDescribed(token, described_assignment(described, topics))
            case AwaitPoll(token, refreshes_topics):
                if refreshes_topics:
                    await callbacks.refresh_topics()
                await callbacks.wait_for_poll()
                return PollEntered(token, callbacks.last_poll())
            case CallRevoked(token, partitions):
                await callbacks.on_revoked(partitions)
                return CallbackDone(token)
            case CallLost(token, partitions):
                await callbacks.on_lost(partitions)
                return CallbackDone(token)
            case CallAssigned(token):
                await self._call_assigned(command)
                return CallbackDone(token)
            case _:
                raise TypeError(f"internal error in kohort: cannot run command {command!r}")

    async def _join(self, command: JoinGroup, join_timeout: float) -> JoinGroupResponse:
        subscriptions = {}
        for name, assignor in self._assignors.items():
            user_data = None
            if _overrides(assignor, "subscription_user_data"):
                compute_user_data = partial(assignor.subscription_user_data, command.topics)
                user_data = await self._call(assignor, compute_user_data)
            subscriptions[name] = _requests.member_subscription(command, user_data, self._rack)
        forms = _requests.join_forms(self._config, command, subscriptions)
        return await self._coordinator.request(forms, timeout=join_timeout, waits_for_members=True)

    async def _consumer_heartbeat(self, command: ConsumerHeartbeat) -> ResponseReceived:
        forms = _requests.consumer_heartbeat_forms(self._config, command)
        try:
            response = await self._coordinator.request(forms, timeout=command.timeout)
        except UnsupportedVersionError as error:
            if not command.regex:
                raise
            reason = "its coordinator has only an early version of the consumer protocol"
            raise pattern_error(self._config.group_id or "", reason) from error
        return ResponseReceived(command.token, response)

    async def _choose_protocol(self, command: ChooseProtocol) -> ProtocolChosen:
        """Look the group's protocol up, and join if it is the consumer protocol."""
        choice = await self._lookup.look_up()
        if choice.protocol == CLASSIC:
            return ProtocolChosen(command.token, choice)
        answer = await self._consumer_heartbeat(command.heartbeat)
        response = answer.response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        refused = choose_by_refusal(response.error_code, response.error_message)
        if refused is not None:
            return ProtocolChosen(command.token, refused)
        return ProtocolChosen(command.token, None if response.error_code else choice, answer)

    async def _assign(self, command: MakeAssignment) -> AssignmentMade:
        """Run the leader's assignor. Fetch the metadata of unknown topics first."""
        names = frozenset(
            topic for subscription in command.members.values() for topic in subscription.topics
        )
        assignor = self._assignors[command.protocol]
        racks = assignor.uses_racks and any(each.rack for each in command.members.values())
        known = self._racks.for_assignment if racks else known_topics
        topics = known(self._cluster.metadata, names)
        if len(topics.partitions) < len(names):
            topics = known(await self._cluster.fetch_topics(names), names)
        try:
            assignments = await self._callbacks.assign(assignor, topics, command.members)
        except Exception as error:
            raise AssignorError(f"assignor {assignor.name!r} raised {error!r}") from error
        checked = await finish_in_slices(
            check_in_steps(
                assignor, topics, command.members, assignments, cooperative=self._cooperative
            )
        )
        return AssignmentMade(command.token, checked, topics)

    async def _call_assigned(self, command: CallAssigned) -> None:
        assignor = self._assignors.get(command.protocol)
        if assignor is not None and _overrides(assignor, "on_assignment"):
            notify = partial(
                assignor.on_assignment,
                Assignment(tuple(sorted(command.assignment)), command.user_data),
                ConsumerGroupMetadata(
                    self._config.group_id,
                    command.generation,
                    command.member_id,
                    self._config.group_instance_id,
                    "stable",
                ),
            )
            try:
                await self._call(assignor, notify)
            except Exception:
                logger.exception(
                    "[%s] on_assignment() of assignor %r raised an error",
                    self._config.group_id,
                    assignor.name,
                )
        # Partitions may have been lost since the command was made.
        await self._callbacks.on_assigned(command.added, command.assignment, self._withheld())

    async def _call(self, assignor: PartitionAssignor, function: Callable[[], T]) -> T:
        """Call a method of an assignor. Only a user's assignor waits for poll()."""
        if is_built_in(assignor):
            return function()
        return await self._callbacks.call_assignor(function)


def _overrides(assignor: PartitionAssignor, method: str) -> bool:
    """True if the assignor overrides a method that does nothing in the base class."""
    return getattr(type(assignor), method) is not getattr(PartitionAssignor, method)
