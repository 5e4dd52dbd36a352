"""A group coordinator without a cluster: requests as calls, and its records in batches."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from kohort.broker.groups import (
    Append,
    Caller,
    GroupCoordinator,
    GroupEnvironment,
    GroupLimits,
    GroupRecords,
)
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.broker.groups.consumer.consumer_machine import FakeTopics
from tests.broker.groups.consumer.group_lives import TOPICS, shown, uuid_bytes

EPOCH_MS = 1_800_000_000_000
"""Time of the clock's start, later than that of the recorded lives."""

Protocols = Sequence[tuple[str, bytes]]


class CoordinatorDriver:
    """A coordinator of all groups. It must be made inside an event loop.

    ``batches`` has the records of each batch that was appended.
    """

    def __init__(self, group_id: str = "g", **settings: Any) -> None:
        self.group_id = group_id
        self.topics = FakeTopics()
        for name, (partitions, topic_id) in TOPICS.items():
            self.topics.create(name, partitions, uuid_bytes(topic_id))
        settings = {"consumer_assignment_interval_ms": 0, **settings}
        self.env = GroupEnvironment(
            GroupLimits(**settings), random.Random(1), EPOCH_MS, self.topics
        )
        self.batches: list[list[Append]] = []
        self.coordinator = GroupCoordinator(self.env, self._append, lambda: None)
        self.coordinator.partitions.update(range(50))
        self.renamed: dict[str, str] = {}
        """Member ids that the coordinator made -> their names in ``shown``."""

    def _append(self, partition: int, records: GroupRecords) -> None:
        self.batches.append([Append("", key, value) for key, value in records])

    @property
    def appended(self) -> list[Append]:
        return [record for batch in self.batches for record in batch]

    def shown(self, record: Append) -> str:
        """Return a record as text, with renamed member ids."""
        text = shown(record)
        for made, name in self.renamed.items():
            text = text.replace(made, name)
        return text

    def load(self, records: Iterable[Append]) -> None:
        self.coordinator.load(0, [(record.key, record.value) for record in records])

    @property
    def state(self) -> str:
        """Type and state of the group, such as "consumer Stable"."""
        group = self.coordinator.groups[self.group_id]
        return f"{group.type_name} {group.state.value}"

    # The consumer protocol

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Iterable[int] | None = None,
        *,
        client: str = "raw-m",
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; ``owned`` has partitions of the topic ka."""
        cls = ConsumerGroupHeartbeatRequest
        partitions = None
        if owned is not None:
            ids = uuid_bytes(TOPICS["ka"][1])
            each = list(owned)
            partitions = [cls.TopicPartitions(topic_id=ids, partitions=each)] if each else []
        request = cls(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=epoch,
            topic_partitions=partitions,
            **fields,
        )
        caller = Caller(client, "/127.0.0.1", 1)
        return self.coordinator.consumer_heartbeat(request, caller)

    def join_consumer(
        self, member_id: str, *, client: str = "raw-m", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["ka"], **fields}
        return self.beat(member_id, 0, [], client=client, **fields)

    # The classic protocol

    async def join(
        self,
        member_id: str,
        protocols: Protocols,
        *,
        instance: str | None = None,
        client: str = "c",
        version: int = 9,
        session_ms: int = 20_000,
    ) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        return await self.coordinator.join(request, Caller(client, "/127.0.0.1", version))

    async def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        protocol: str = "range",
        instance: str | None = None,
    ) -> SyncGroupResponse:
        cls = SyncGroupRequest
        request = cls(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                cls.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return await self.coordinator.sync(request)

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.coordinator.heartbeat(request)

    def leave(self, member_id: str = "", *, instance: str | None = None) -> int:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        _, (response,) = self.coordinator.leave(self.group_id, [identity])
        return response.error_code

    def leave_together(self, *member_ids: str) -> list[int]:
        """Remove several members by one request."""
        identities = [LeaveGroupRequest.MemberIdentity(member_id=each) for each in member_ids]
        _, responses = self.coordinator.leave(self.group_id, identities)
        return [response.error_code for response in responses]
