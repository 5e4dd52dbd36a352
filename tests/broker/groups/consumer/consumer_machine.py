"""Consumer groups without a coordinator: requests as calls, and a clock moved by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kohort.broker.groups import (
    AnyGroup,
    Append,
    Caller,
    ConsumerGroup,
    GroupEnvironment,
    GroupLimits,
    SendResponse,
    TopicInfo,
)
from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.consumer._requests import ConsumerRequests
from kohort.broker.groups.consumer._validation import validate_heartbeat
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    LeaveGroupRequest,
)

Owned = Mapping[str, Iterable[int]]


class FakeTopics:
    """Topics by name, whose ids are their names."""

    def __init__(self) -> None:
        self.version = 0
        self.creation_version = 0
        self._topics: dict[str, TopicInfo] = {}

    def create(self, name: str, partitions: int, topic_id: bytes = b"") -> None:
        self.version += 1
        self.creation_version = self.version
        self._set(name, partitions, topic_id or name.encode().ljust(16, b"\0"))

    def grow(self, name: str, partitions: int) -> None:
        self.version += 1
        self._set(name, partitions, self._topics[name].topic_id)

    def delete(self, name: str) -> None:
        self.version += 1
        del self._topics[name]

    def _set(self, name: str, partitions: int, topic_id: bytes) -> None:
        self._topics[name] = TopicInfo(name, topic_id, [[]] * partitions)

    def named(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def identified(self, topic_id: bytes) -> TopicInfo | None:
        found = (topic for topic in self._topics.values() if topic.topic_id == topic_id)
        return next(found, None)

    def names(self) -> Iterable[str]:
        return list(self._topics)


class ConsumerMachine:
    """A table of groups, its clock, and the records that were appended.

    ``batches`` has the records of each request or timeout.
    """

    def __init__(self, *, epoch_ms: int = 1_000_000, **settings: Any) -> None:
        self.topics = FakeTopics()
        settings = {"consumer_assignment_interval_ms": 0, **settings}
        self.env = GroupEnvironment(
            GroupLimits(**settings), random.Random(1), epoch_ms, self.topics
        )
        self.groups: dict[str, AnyGroup] = {}
        self.requests = ConsumerRequests(self.groups, self.env)
        self.now = 0.0
        self.batches: list[list[Append]] = []
        self.can_describe: Callable[[str], bool] = lambda name: True

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups["g"]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def appended(self) -> list[Append]:
        return [record for batch in self.batches for record in batch]

    def settle(self) -> None:
        """Take the effects so far as one batch."""
        effects, self.env.effects = self.env.effects, []
        records = [effect for effect in effects if not isinstance(effect, SendResponse)]
        if records:
            self.batches.append(records)

    def pass_time(self, seconds: float) -> None:
        """Let time pass and run each timer at its time."""
        end = self.now + seconds
        while (deadline := self.env.timers.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            for key in self.env.timers.pop_due(self.now):
                group = self.groups.get(key.group_id)
                if isinstance(group, ConsumerGroup):
                    self.requests.on_timeout(group, key, self.now)
                self.settle()
        self.now = end

    def send(
        self, request: ConsumerGroupHeartbeatRequest, client: str = "c"
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat as it is; a refusal is a response with its error."""
        caller = Caller(client, "/127.0.0.1", 1, lambda name: self.can_describe(name))
        try:
            validate_heartbeat(request, 1, self.env.config.consumer_assignors)
            response = self.requests.heartbeat(request, caller, self.now)
        except GroupRequestError as error:
            assert not self.env.effects, "a refused request changed the group"
            return ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
        self.settle()
        return response

    def beat(
        self, member_id: str, epoch: int, owned: Owned | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; ``owned`` has partitions by topic name."""
        cls = ConsumerGroupHeartbeatRequest
        partitions = None
        if owned is not None:
            partitions = [
                cls.TopicPartitions(topic_id=self.topic_id(name), partitions=list(each))
                for name, each in owned.items()
            ]
        return self.send(
            cls(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                topic_partitions=partitions,
                **fields,
            )
        )

    def join(
        self, member_id: str, names: Sequence[str] | None = ("t",), **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        fields = {"rebalance_timeout_ms": 60_000, **fields}
        subscribed = None if names is None else list(names)
        return self.beat(member_id, 0, {}, subscribed_topic_names=subscribed, **fields)

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        """Send LeaveGroup for pairs of member id and instance id, and return the error codes."""
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in members
        ]
        responses = self.requests.leave(self.group, identities, self.now)
        self.settle()
        return [response.error_code for response in responses]

    def topic_id(self, name: str) -> bytes:
        topic = self.topics.named(name)
        assert topic is not None
        return topic.topic_id

    def assignment(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Return the assignment of a response by topic names, None if it has none."""
        if response.assignment is None:
            return None
        named = {}
        for each in response.assignment.topic_partitions:
            topic = self.topics.identified(bytes(each.topic_id))
            assert topic is not None
            named[topic.name] = list(each.partitions)
        return named
