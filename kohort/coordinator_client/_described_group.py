"""A consumer group as ConsumerGroupDescribe returns it, and why a member has no partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from kohort.coordinator_client._coordinator import CoordinatorConnection, RequestForm
from kohort.coordinator_client.assignors import Assignment, ClusterTopics, Subscription
from kohort.errors import ErrorCode, broker_error
from kohort.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.transport import counted, escaped
from kohort.types import NamedTuple, TopicPartition

Group = ConsumerGroupDescribeResponse.DescribedGroup
_Member = ConsumerGroupDescribeResponse.Member
_Assignment = ConsumerGroupDescribeResponse.Assignment

_MAX_NAMES = 5
"""Maximum number of partitions, topics or members that a cause names."""


class HeldPartition(NamedTuple):
    """A partition that this member is to get, and the member that has not released it."""

    partition: TopicPartition
    member_id: str
    client_id: str
    host: str


class AssignmentCause(NamedTuple):
    """The reason why a member has no partitions, or not all that it is to get."""

    text: str
    members: int
    """Number of the group's members that subscribe to topics of this member."""
    partitions: int
    """Number of partitions of this member's topics."""
    held: tuple[HeldPartition, ...] = ()
    """The partitions that this member waits for."""


async def describe_group(
    coordinator: CoordinatorConnection, group_id: str, timeout: float
) -> Group:
    """Return the description of the group, or raise the error that the coordinator returns.

    One is a missing DESCRIBE on the group or on one of its topics. ``timeout`` limits the request,
    in seconds.
    """
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    response = await coordinator.request([RequestForm(request)], timeout=timeout)
    group = next((each for each in response.groups if each.group_id == group_id), None)
    code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.error_code
    if group is None or code:
        raise broker_error(code)
    return group


def is_idle(group: Group, member_id: str, partitions: Collection[TopicPartition]) -> bool:
    """True if the coordinator has assigned all these partitions to other members.

    The assignment of an earlier epoch may leave out a new member or a new topic.
    """
    assigned = {
        tp: member.member_id
        for member in group.members
        for tp in _partitions(member.target_assignment)
    }
    is_latest = group.assignment_epoch == group.group_epoch
    is_member = any(member.member_id == member_id for member in group.members)
    has_none = member_id not in assigned.values()
    return is_latest and is_member and has_none and assigned.keys() >= set(partitions)


def cause_in_consumer_group(
    group: Group, member_id: str, owned: frozenset[TopicPartition]
) -> AssignmentCause | None:
    """Return why the member has not all partitions of its assignment, or none at all.

    Return None if the next heartbeat changes that.
    """
    me = next((each for each in group.members if each.member_id == member_id), None)
    if me is None:
        return None
    subscriptions = {each.member_id: _subscription(each) for each in group.members}
    sharing = _sharing(subscriptions, member_id)
    partitions = {
        tp
        for each in group.members
        if each.member_id in sharing
        for tp in _partitions(each.target_assignment)
        if me.subscribed_topic_regex or tp.topic in me.subscribed_topic_names
    }
    target = frozenset(_partitions(me.target_assignment))
    held = _held(group, me, target - owned)
    if held:
        text = f"this member waits for {_held_text(held)}"
        return AssignmentCause(text, len(sharing), len(partitions), held)
    if target or owned:
        return None
    if group.assignment_epoch != group.group_epoch:
        text = f"the coordinator has not made the assignment of epoch {group.group_epoch} yet"
        return _no_partitions(text, sharing, len(partitions))
    if not partitions:
        return _no_topics("the coordinator", subscriptions[member_id], sharing)
    return _idle(subscriptions, sharing, len(partitions), group.assignor_name)


def cause_in_classic_group(
    members: Mapping[str, Subscription],
    assignments: Mapping[str, Assignment],
    topics: ClusterTopics,
    member_id: str,
    assignor: str,
) -> AssignmentCause | None:
    """Return why the leader has assigned nothing to itself, or None if it has assigned some.

    Return None, too, if partitions are left for the next rebalance.
    """
    if member_id not in members or assignments[member_id].partitions:
        return None
    mine = frozenset(members[member_id].topics)
    subscriptions = {each: frozenset(one.topics) for each, one in members.items()}
    sharing = _sharing(subscriptions, member_id)
    partitions = sum(topics.partitions.get(topic, 0) for topic in mine)
    assigned = sum(tp.topic in mine for one in assignments.values() for tp in one.partitions)
    if not partitions:
        return _no_topics("this member, the leader,", mine, sharing)
    if assigned < partitions:
        return None
    return _idle(subscriptions, sharing, partitions, assignor)


def _held(
    group: Group, me: _Member, missing: frozenset[TopicPartition]
) -> tuple[HeldPartition, ...]:
    """Return those of the partitions that other members own."""
    return tuple(
        HeldPartition(tp, other.member_id, other.client_id, other.client_host.lstrip("/"))
        for other in group.members
        if other is not me
        for tp in sorted(missing & frozenset(_partitions(other.assignment)))
    )


def _held_text(held: tuple[HeldPartition, ...]) -> str:
    by_holder: dict[tuple[str, ...], list[str]] = {}
    for (topic, number), *holder in held[:_MAX_NAMES]:
        by_holder.setdefault(tuple(map(escaped, holder)), []).append(f"{escaped(topic)}-{number}")
    parts = [
        f"{', '.join(names)}, which member {member_id} (client id {client_id}, host {host}) has "
        "not released yet"
        for (member_id, client_id, host), names in by_holder.items()
    ]
    if len(held) > _MAX_NAMES:
        parts.append(counted(len(held) - _MAX_NAMES, "more partition"))
    return ", and for ".join(parts)


def _idle(
    subscriptions: Mapping[str, object], sharing: frozenset[str], partitions: int, assignor: str
) -> AssignmentCause:
    """Return the cause for a member whose topics are assigned to others."""
    members = counted(len(sharing), "member")
    if len(sharing) == len(subscriptions) and len(set(subscriptions.values())) == 1:
        text = f"the group has {members} and {counted(partitions, 'partition')}"
    else:
        verb = "subscribes" if len(sharing) == 1 else "subscribe"
        text = (
            f"{members} of the group {verb} to its topics, which have "
            f"{counted(partitions, 'partition')}"
        )
    if len(sharing) <= partitions:
        text += f". Assignor {escaped(assignor)} has assigned all of them to other members"
    return _no_partitions(text, sharing, partitions)


def _no_topics(who: str, topics: frozenset[str], sharing: frozenset[str]) -> AssignmentCause:
    names = sorted(escaped(topic) for topic in topics)
    shown = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
    return _no_partitions(f"{who} knows no partitions of {shown}", sharing, 0)


def _no_partitions(text: str, sharing: frozenset[str], partitions: int) -> AssignmentCause:
    return AssignmentCause(f"this member has no partitions: {text}", len(sharing), partitions)


def _sharing(subscriptions: Mapping[str, frozenset[str]], member_id: str) -> frozenset[str]:
    """Return the members that subscribe to a topic or pattern of this member, with itself."""
    mine = subscriptions[member_id]
    return frozenset(each for each, topics in subscriptions.items() if topics & mine) | {member_id}


def _subscription(member: _Member) -> frozenset[str]:
    """Return the names of topics, and the pattern, if there is one."""
    pattern = member.subscribed_topic_regex
    return frozenset([*member.subscribed_topic_names, *([f"pattern {pattern}"] if pattern else [])])


def _partitions(assignment: _Assignment) -> Iterator[TopicPartition]:
    for topic in assignment.topic_partitions:
        for number in topic.partitions:
            yield TopicPartition(topic.topic_name, number)
