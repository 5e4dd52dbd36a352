"""Observation of groups of the consumer protocol, inside coordinators and members."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kohort.broker.cluster._topics import Topic, Topics
from kohort.broker.groups import Caller, ClassicGroup, GroupCoordinator, GroupState
from kohort.coordinator_client.consumer._membership import ConsumerMembership
from kohort.coordinator_client.machine._commands import Command, ConsumerHeartbeat
from kohort.coordinator_client.machine._events import ResponseReceived
from kohort.protocol import decode
from kohort.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
)
from kohort.types import TopicPartition
from tests.simulation.events import (
    EpochStored,
    Event,
    EventLog,
    MemberRemoved,
    MemberStored,
    OwnedReported,
    Partitions,
    RebalanceForgotten,
    TargetReceived,
    now,
)
from tests.simulation.incarnations import name_of

_INT16 = struct.Struct(">h")
_CLASSIC, _EPOCH, _CLIENT, _MEMBER = 2, 3, 5, 8
"""Types of the records of a classic group, of a group's epoch, of a member's client and of a
member's partitions.
"""
_UNFINISHED = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class EpochWitness:
    """Client ids of members, names of topics by their ids, and the log to add events to."""

    def __init__(self, log: EventLog) -> None:
        self.by_epoch: set[str] = set()
        """Client ids of members that have sent a heartbeat of the consumer protocol."""
        self._log = log
        self._clients: dict[str, str] = {}
        self._names: dict[bytes, str] = {}
        self._created: Counter[str] = Counter()
        self._rebalancing: int | None = None
        """The generation of a classic rebalance that is not complete."""
        self._is_downgraded = False
        """True from the record that makes a group classic to its first complete rebalance."""
        self._was_by_epoch = False

    def topic_created(self, topic: Topic) -> None:
        self._created[topic.name] += 1
        self._names[topic.id] = name_of(topic.name, self._created[topic.name])

    def heartbeat_arrived(self, request: ConsumerGroupHeartbeatRequest, client_id: str) -> None:
        self.by_epoch.add(client_id)
        self._clients[request.member_id] = client_id

    def member_sends(self, command: Command) -> None:
        if isinstance(command, ConsumerHeartbeat) and command.owned is not None and command.epoch:
            who = self._clients.get(command.member_id, "")
            owned = frozenset(TopicPartition(self._names[id_], n) for id_, n in command.owned)
            self._log.add(OwnedReported(at=now(), who=who, partitions=owned))

    def response_arrived(self, response: ConsumerGroupHeartbeatResponse) -> None:
        assignment = response.assignment
        if not response.error_code and assignment is not None:
            target = self._partitions(assignment.topic_partitions)
            who = self._clients.get(response.member_id or "", "")
            self._log.add(TargetReceived(at=now(), who=who, partitions=target))

    def state_changed(self, group: ClassicGroup) -> None:
        if group.state is not GroupState.DEAD:  # moved to another coordinator
            self._rebalancing = group.generation if group.state in _UNFINISHED else None

    def loaded(self, group: ClassicGroup) -> None:
        if self._is_downgraded and self._rebalancing == group.generation:
            self._forget_rebalance()

    def _forget_rebalance(self) -> None:
        assert self._rebalancing is not None
        self._log.add(RebalanceForgotten(at=now(), generation=self._rebalancing))
        self._rebalancing = None

    def record_stored(self, key: bytes, value: bytes | None) -> None:
        event = self._event(key, value)
        if event is not None:
            self._log.add(event)

    def _event(self, key: bytes, value: bytes | None) -> Event | None:
        (kind,) = _INT16.unpack_from(key)
        if kind == _CLASSIC and value is not None:
            self._is_downgraded, self._was_by_epoch = self._was_by_epoch, False
        if kind == _EPOCH and value is None:
            self._was_by_epoch = True
        if kind == _CLIENT and value is not None:
            member = decode(ConsumerGroupMemberMetadataKey, 0, memoryview(key)[2:])
            client = decode(ConsumerGroupMemberMetadataValue, 0, memoryview(value)[2:])
            self._clients[member.member_id] = client.client_id
        if kind == _EPOCH and value is not None:
            group = decode(ConsumerGroupMetadataValue, 0, memoryview(value)[2:])
            if self._rebalancing == group.epoch:  # an upgrade, as no other group has this epoch
                self._forget_rebalance()
            return EpochStored(at=now(), epoch=group.epoch)
        if kind != _MEMBER:
            return None
        data = memoryview(key)[2:]
        member_id = decode(ConsumerGroupCurrentMemberAssignmentKey, 0, data).member_id
        who = self._clients.get(member_id, "")
        if value is None:
            return MemberRemoved(at=now(), who=who, member_id=member_id)
        stored = decode(ConsumerGroupCurrentMemberAssignmentValue, 0, memoryview(value)[2:])
        return MemberStored(
            at=now(),
            who=who,
            member_id=member_id,
            epoch=stored.member_epoch,
            assigned=self._partitions(stored.assigned_partitions),
            pending=self._partitions(stored.partitions_pending_revocation),
        )

    def _partitions(self, topics: Iterable[Any]) -> Partitions:
        return frozenset(
            TopicPartition(self._names[topic.topic_id], number)
            for topic in topics
            for number in topic.partitions
        )


@contextmanager
def watching_epochs(log: EventLog) -> Iterator[EpochWitness]:
    """Log what coordinators and members of the consumer protocol do within the block."""
    witness = EpochWitness(log)
    create: Callable[..., Topic] = Topics.create
    heartbeat: Callable[..., ConsumerGroupHeartbeatResponse] = GroupCoordinator.consumer_heartbeat
    handle: Callable[..., Any] = ConsumerMembership.handle
    load: Callable[..., None] = GroupCoordinator.load
    transition: Callable[..., None] = ClassicGroup.transition

    def changed(group: ClassicGroup, state: GroupState, at: float) -> None:
        transition(group, state, at)
        witness.state_changed(group)

    def loaded(coordinator: GroupCoordinator, *args: Any) -> None:
        before = set(coordinator.groups)
        load(coordinator, *args)
        for group_id in sorted(coordinator.groups.keys() - before):
            if isinstance(group := coordinator.groups[group_id], ClassicGroup):
                witness.loaded(group)

    def created(topics: Topics, *args: Any) -> Topic:
        topic = create(topics, *args)
        witness.topic_created(topic)
        return topic

    def arrived(
        coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> ConsumerGroupHeartbeatResponse:
        witness.heartbeat_arrived(request, caller.client_id)
        return heartbeat(coordinator, request, caller)

    def handled(membership: ConsumerMembership, event: Any, at: float) -> Any:
        match event:
            case ResponseReceived(response=ConsumerGroupHeartbeatResponse() as response):
                witness.response_arrived(response)
        commands = handle(membership, event, at)
        for command in commands:
            witness.member_sends(command)
        return commands

    with (
        patch.object(Topics, "create", created),
        patch.object(GroupCoordinator, "consumer_heartbeat", arrived),
        patch.object(ConsumerMembership, "handle", handled),
        patch.object(GroupCoordinator, "load", loaded),
        patch.object(ClassicGroup, "transition", changed),
    ):
        yield witness
