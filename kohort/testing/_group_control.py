"""Control of groups: methods of a cluster that rebalance a group, remove members and assign."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kohort.broker.groups import AnyGroup, ClassicGroup, GroupCoordinator, subscribed_topics
from kohort.errors import (
    ErrorCode,
    IllegalStateError,
    InvalidOptionError,
    MessageDecodeError,
    broker_error,
)
from kohort.protocol.messages import LeaveGroupRequest
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.broker._cluster_server import ClusterServer
    from kohort.broker.cluster._cluster_state import ClusterState

T = TypeVar("T")


class GroupControl(ABC):
    """Methods of a cluster that change groups of the classic and the consumer protocol.

    They return at once. Members notice the change with their next heartbeat, and
    ``wait_for_group()`` waits until the group is stable again. ``member`` is a member id, a group
    instance id, or the client id of exactly one member. The error for another one is
    UnknownMemberIdError. A group without members raises IllegalStateError.
    """

    @abstractmethod
    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        """Run a function on the cluster in the cluster's event loop."""

    def rebalance(self, group_id: str) -> None:
        """Start a rebalance of a group, as if a member had joined or left.

        All members of a classic group join again. A group of the consumer protocol gets a new epoch
        and a new target assignment, which is usually that of before.
        """

        def start(server: ClusterServer) -> None:
            coordinator, group = _group(server.state, group_id)
            coordinator.rebalance(group)

        self._call(start)

    def evict(self, group_id: str, member: str) -> str:
        """Remove a member, as if its session had ended, and return its member id.

        The member learns from its next heartbeat or commit that its partitions are lost, and joins
        again.
        """

        def remove(server: ClusterServer) -> str:
            coordinator, group = _group(server.state, group_id)
            found = _member_id(group, member)
            identity = LeaveGroupRequest.MemberIdentity(
                member_id=found, group_instance_id=_instance_id(group, found)
            )
            coordinator.leave(group_id, [identity])
            return found

        return self._call(remove)

    def assign(
        self, group_id: str, assignment: Mapping[str, Iterable[TopicPartition | tuple[str, int]]]
    ) -> None:
        """Give each member exactly these partitions, in place of what the assignor decides.

        A member that is not named gets none, and a partition that is not named has no owner. The
        next rebalance assigns as usual. A member must subscribe to the topics of its partitions.
        Raises InvalidOptionError for a partition that is given twice or to such a member.
        """

        def give(server: ClusterServer) -> None:
            coordinator, group = _group(server.state, group_id)
            wanted: dict[str, dict[bytes, set[int]]] = {each: {} for each in group.members}
            owners: dict[TopicPartition, str] = {}
            for member, partitions in assignment.items():
                member_id = _member_id(group, member)
                for tp in (TopicPartition(*each) for each in partitions):
                    if owners.setdefault(tp, member_id) != member_id:
                        raise InvalidOptionError(f"assignment: {_shown(tp)} has two members")
                    _check_subscription(group, member, member_id, tp)
                    topic_id = _topic_id(server.state, tp)
                    wanted[member_id].setdefault(topic_id, set()).add(tp.partition)
            coordinator.assign(
                group,
                {
                    member_id: {topic_id: frozenset(each) for topic_id, each in topics.items()}
                    for member_id, topics in wanted.items()
                },
            )

        self._call(give)


def _group(state: ClusterState, group_id: str) -> tuple[GroupCoordinator, AnyGroup]:
    if state.share_group(group_id) is not None:
        raise IllegalStateError(f"group {group_id!r} is a share group, whose members own nothing")
    for broker in state.brokers.values():
        group = broker.coordinator.groups.get(group_id)
        if group is not None and group.members:
            return broker.coordinator, group
    raise IllegalStateError(f"group {group_id!r} has no members")


def _member_id(group: AnyGroup, name: str) -> str:
    if name in group.members:
        return name
    named = [each for each in group.members if _instance_id(group, each) == name]
    named = named or [key for key, each in group.members.items() if each.client_id == name]
    if len(named) == 1:
        return named[0]
    clients = ", ".join(sorted(each.client_id for each in group.members.values()))
    count = f"{len(named)} members" if named else "no member"
    raise broker_error(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"group {group.group_id!r} has {count} {name!r}. Its clients are {clients}",
    )


def _instance_id(group: AnyGroup, member_id: str) -> str | None:
    if isinstance(group, ClassicGroup):
        return group.members[member_id].group_instance_id
    return group.members[member_id].instance_id


def _check_subscription(group: AnyGroup, member: str, member_id: str, tp: TopicPartition) -> None:
    try:
        topics = subscribed_topics(group, member_id)
    except MessageDecodeError:
        topics = frozenset()
    if tp.topic not in topics:
        names = ", ".join(sorted(topics)) or "no topics"
        raise InvalidOptionError(
            f"assignment: member {member!r} does not subscribe to {tp.topic!r}, but to {names}"
        )


def _topic_id(state: ClusterState, tp: TopicPartition) -> bytes:
    topic = state.topics.get(tp.topic)
    if topic is None or state.topics.partition(*tp) is None:
        raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {_shown(tp)}")
    return topic.id


def _shown(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
