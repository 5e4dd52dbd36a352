"""Members of consumer groups (KIP-848), which a probe moves through their states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kohort.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreatePartitionsRequest,
)
from tests.conformance.session import Session, wait_for
from tests.conformance.wire import FAR_MS

TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions

LEAVE, LEAVE_FOR_NOW = -1, -2
"""Member epochs of a member that leaves, and of a static one that will be back."""


@dataclass
class ConsumerMember:
    """Member of a consumer group. ``epoch`` and ``target`` are those of the last good response.

    ``id`` is the member id. It is the same on both clusters, unlike those that a broker invents.
    """

    session: Session
    group: str
    id: str
    topics: Sequence[str] = ()
    instance: str | None = None
    regex: str | None = None
    assignor: str | None = None
    rebalance_ms: int = FAR_MS
    version: int = 1
    epoch: int = 0
    target: list[TopicPartitions] = field(default_factory=list)

    def request(self, **other: object) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat without changes. ``other`` sets further fields."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance,
        )
        for name, value in other.items():
            setattr(request, name, value)
        return request

    def full_request(self, **other: object) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat with every field, as after an error."""
        fields: dict[str, object] = {
            "rebalance_timeout_ms": self.rebalance_ms,
            "subscribed_topic_names": list(self.topics),
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.assignor,
            "topic_partitions": self.target,
        }
        return self.request(**{**fields, **other})

    def join_request(self, **other: object) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that joins."""
        return self.full_request(**{"member_epoch": 0, "topic_partitions": [], **other})

    def ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat and store the epoch and the assignment of its response."""
        answer = self.session.ask(request, self.version)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            self.id = answer.member_id or self.id
            if answer.assignment is not None:
                self.target = owned(answer)
        return answer

    def join(self, **other: object) -> ConsumerGroupHeartbeatResponse:
        return self.ask(self.join_request(**other))

    def beat(self, **other: object) -> ConsumerGroupHeartbeatResponse:
        return self.ask(self.request(**other))

    def acknowledge(self, **other: object) -> ConsumerGroupHeartbeatResponse:
        """Report the last assignment as owned."""
        return self.beat(topic_partitions=self.target, **other)

    def repeat(self, **other: object) -> ConsumerGroupHeartbeatResponse:
        """Send every field, as after an error."""
        return self.ask(self.full_request(**other))

    def leave(self, epoch: int = LEAVE) -> ConsumerGroupHeartbeatResponse:
        return self.session.ask(self.request(member_epoch=epoch), self.version)

    def settle(self) -> None:
        """Join and acknowledge the whole assignment."""
        self.join()
        answer = self.acknowledge()
        assert answer.error_code == 0, answer


def owned(answer: ConsumerGroupHeartbeatResponse) -> list[TopicPartitions]:
    """Return the assignment of a response as a member reports it."""
    assert answer.assignment is not None
    return [
        TopicPartitions(topic_id=each.topic_id, partitions=sorted(each.partitions))
        for each in answer.assignment.topic_partitions
    ]


def new_topic(session: Session, label: str = "t", partitions: int = 4) -> str:
    """Create a topic that the group coordinators know, and give its id a name."""
    name = session.topic(label, partitions)
    session.name_id(session.topic_id(name), label)
    _wait_until_known(session, name, partitions)
    return name


def grow(session: Session, topic: str, partitions: int) -> None:
    """Add partitions to a topic, up to this number, and wait until the coordinators know them."""
    asked = CreatePartitionsRequest.CreatePartitionsTopic(
        name=topic, count=partitions, assignments=None
    )
    created = session.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000), 3)
    assert created.results[0].error_code == 0, created
    _wait_until_known(session, topic, partitions)


def _wait_until_known(session: Session, topic: str, partitions: int) -> None:
    """Return when a member of a new group gets all partitions of the topic."""
    scratch = ConsumerMember(session, f"scratch.{topic}.{partitions}", "scratch", [topic])

    def knows_all() -> bool:
        answer = scratch.join()
        return answer.assignment is not None and len(_flat(answer)) >= partitions

    wait_for(knows_all, f"the coordinator knows {partitions} partitions of {topic}")
    scratch.leave()


def _flat(answer: ConsumerGroupHeartbeatResponse) -> list[tuple[bytes, int]]:
    return [(each.topic_id, index) for each in owned(answer) for index in each.partitions]


def member(session: Session, topic: str, name: str = "a", **options: object) -> ConsumerMember:
    """Return a new member of the probe's first group. ``options`` are those of the class."""
    group = session.group()
    return ConsumerMember(session, group, name, [topic], **options)  # type: ignore[arg-type]


def peer(of: ConsumerMember, name: str, **options: object) -> ConsumerMember:
    """Return a new member of the same group, with the same topics."""
    fields: dict[str, object] = {"topics": of.topics, "version": of.version, **options}
    return ConsumerMember(of.session, of.group, name, **fields)  # type: ignore[arg-type]


def described(session: Session, *groups: str, version: int = 1) -> ConsumerGroupDescribeResponse:
    return session.ask(ConsumerGroupDescribeRequest(group_ids=list(groups)), version)


def state(session: Session, group: str) -> str:
    return described(session, group).groups[0].group_state


def wait_for_members(session: Session, group: str, count: int) -> None:
    """Return when the group has this number of members. A group that became classic has none."""
    wait_for(
        lambda: len(described(session, group).groups[0].members) == count,
        f"{group} has {count} members",
    )


def settled_pair(
    session: Session, topic: str, **options: object
) -> tuple[ConsumerMember, ConsumerMember]:
    """Return two members that have reached their target, with half of the partitions each."""
    first = member(session, topic, "a", **options)
    second = peer(first, "b", **options)
    first.settle()
    second.join()
    for each in (first, first, second, second):
        each.beat()
        each.acknowledge()
    return first, second


def rounds(*members: ConsumerMember) -> Iterator[tuple[str, ConsumerGroupHeartbeatResponse]]:
    """Let each member heartbeat and acknowledge, and yield every response with a label."""
    for each in members:
        yield f"{each.id} beats", each.beat()
        yield f"{each.id} acknowledges", each.acknowledge()


Step = tuple[str, Callable[[], object]]


def story(session: Session, group: str, *steps: Step) -> Iterator[tuple[str, object]]:
    """Do each step, and yield its response and the group after it."""
    for number, (label, step) in enumerate(steps, 1):
        yield f"{number}. {label}", step()
        yield f"{number}. after it", described(session, group)
