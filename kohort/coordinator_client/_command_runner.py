"""Each command of the machine that takes its time, from its start to the event that ends it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kohort.config import GroupConfig
from kohort.coordinator_client import _requests
from kohort.coordinator_client._assignment_check import check_in_steps
from kohort.coordinator_client._cluster_view import Cluster, known_topics
from kohort.coordinator_client._commands import (
    AwaitPoll,
    CallAssigned,
    CallLost,
    CallRevoked,
    Command,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MakeAssignment,
    SyncGroup,
)
from kohort.coordinator_client._consumer_protocol import read_members, write_assignments
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client._events import (
    AssignmentMade,
    CallbackDone,
    Event,
    PollEntered,
    ResponseReceived,
)
from kohort.coordinator_client._group_callbacks import GroupCallbacks
from kohort.coordinator_client.assignors import (
    Assignment,
    PartitionAssignor,
    in_slices,
    is_built_in,
)
from kohort.errors import AssignorError
from kohort.protocol.messages import JoinGroupResponse
from kohort.types import ConsumerGroupMetadata

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOIN_SLACK = 5.0
"""Seconds beyond the rebalance timeout that the coordinator gets to answer JoinGroup."""


class Steps:
    """Requests to the coordinator, calls to the host, and the assignors."""

    def __init__(
        self,
        cluster: Cluster,
        link: CoordinatorConnection,
        config: GroupConfig,
        assignors: Sequence[PartitionAssignor],
        host: GroupCallbacks,
        *,
        cooperative: bool,
        rack: str | None,
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._host = host
        self._cooperative = cooperative
        self._rack = rack or None

    async def take(self, command: Command) -> Event:
        """Run a command to its end. Raises what stands in its way."""
        config, host = self._config, self._host
        patience = config.rebalance_timeout_ms / 1000 + JOIN_SLACK
        match command:
            case JoinGroup(token):
                joined = await self._join(command, patience)
                members = await in_slices(read_members(joined, config.group_id or ""))
                return ResponseReceived(token, joined, members)
            case SyncGroup(token):
                blobs = await in_slices(write_assignments(command.assignments))
                forms = _requests.sync(config, command, blobs)
                synced = await self._link.request(forms, timeout=patience, parked=True)
                return ResponseReceived(token, synced)
            case Heartbeat(token):
                beat = await self._link.request(
                    _requests.heartbeat(config, command), timeout=command.timeout
                )
                return ResponseReceived(token, beat)
            case LeaveGroup(token):
                left = await self._link.request(
                    _requests.leave(config, command), timeout=config.request_timeout_ms / 1000
                )
                return ResponseReceived(token, left)
            case MakeAssignment():
                return await self._assign(command)
            case AwaitPoll(token):
                await host.wait_for_poll()
                return PollEntered(token, host.last_poll())
            case CallRevoked(token, partitions):
                await host.on_revoked(partitions)
                return CallbackDone(token)
            case CallLost(token, partitions):
                await host.on_lost(partitions)
                return CallbackDone(token)
            case CallAssigned(token):
                await self._assigned(command)
                return CallbackDone(token)
            case _:
                raise TypeError(f"not a command that takes its time: {command!r}")

    async def _join(self, command: JoinGroup, patience: float) -> JoinGroupResponse:
        offers = {}
        for name, assignor in self._assignors.items():
            user_data = None
            if _has_own(assignor, "subscription_user_data"):
                ask = partial(assignor.subscription_user_data, command.topics)
                user_data = await self._call(assignor, ask)
            offers[name] = _requests.subscription(command, user_data, self._rack)
        forms = _requests.join(self._config, command, offers)
        return await self._link.request(forms, timeout=patience, parked=True)

    async def _assign(self, command: MakeAssignment) -> AssignmentMade:
        """The leader's duty. Topics that are not known yet are asked for first."""
        names = frozenset(topic for said in command.members.values() for topic in said.topics)
        racks = any(said.rack for said in command.members.values())
        topics = known_topics(self._cluster.metadata, names, racks=racks)
        if len(topics.partitions) < len(names):
            topics = known_topics(await self._cluster.fetch_topics(names), names, racks=racks)
        assignor = self._assignors[command.protocol]
        try:
            dealt = await self._host.assign(assignor, topics, command.members)
        except Exception as error:
            raise AssignorError(f"assignor {assignor.name!r} raised {error!r}") from error
        checked = await in_slices(
            check_in_steps(assignor, topics, command.members, dealt, cooperative=self._cooperative)
        )
        return AssignmentMade(command.token, checked, topics)

    async def _assigned(self, command: CallAssigned) -> None:
        assignor = self._assignors.get(command.protocol)
        if assignor is not None and _has_own(assignor, "on_assignment"):
            tell = partial(
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
                await self._call(assignor, tell)
            except Exception:
                logger.exception("on_assignment of assignor %r raised", assignor.name)
        await self._host.on_assigned(command.added, command.assignment)

    async def _call(self, assignor: PartitionAssignor, function: Callable[[], T]) -> T:
        """Kohort's own assignors need nobody to be inside poll()."""
        if is_built_in(assignor):
            return function()
        return await self._host.call_assignor(function)


def _has_own(assignor: PartitionAssignor, method: str) -> bool:
    """The assignor does something in a method that does nothing in the base class."""
    return getattr(type(assignor), method) is not getattr(PartitionAssignor, method)
