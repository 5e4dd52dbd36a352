"""ConsumerGroupDescribe (API 69), versions 0-1.

It describes groups of the consumer protocol. Version 1 adds the type of each member. Clients
describe all groups with this API first, then the refused ones with DescribeGroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.broker.apis._group_descriptions import describe_all, hidden, not_found
from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import NOT_REQUESTED
from kohort.broker.groups import ConsumerGroup, ConsumerMember
from kohort.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

_Described = ConsumerGroupDescribeResponse.DescribedGroup
_Member = ConsumerGroupDescribeResponse.Member
_Assignment = ConsumerGroupDescribeResponse.Assignment
_CLASSIC, _CONSUMER = 0, 1


@serves(ConsumerGroupDescribeRequest, (0, 1))
async def consumer_group_describe(
    ctx: Context, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = describe_all(
        ctx,
        request.group_ids,
        _Described,
        _describe,
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> _Described:
    group = ctx.broker.coordinator.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return not_found(_Described, group_id, what)
    members = [_member(ctx, group, member) for member in group.members.values()]
    if entry := hidden(ctx, _Described, group_id, _topics(members)):
        return entry
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=members,
        authorized_operations=NOT_REQUESTED,
    )


def _topics(members: Iterable[_Member]) -> set[str]:
    """Return the names of all assigned topics."""
    return {
        topic.topic_name
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _member(ctx: Context, group: ConsumerGroup, member: ConsumerMember) -> _Member:
    return _Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(ctx, _held(member)),
        target_assignment=_assignment(ctx, group.targets.get(member.member_id, {})),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _held(member: ConsumerMember) -> dict[bytes, list[int]]:
    """Return the partitions of a member, also those that it has to give up."""
    held: dict[bytes, list[int]] = {}
    for topic_id, partition in member.held:
        held.setdefault(topic_id, []).append(partition)
    return held


def _assignment(ctx: Context, partitions: Mapping[bytes, Iterable[int]]) -> _Assignment:
    """Return partitions with the names of their topics, without topics that do not exist."""
    topics = ((ctx.broker.cluster.topics.by_id(topic_id), topic_id) for topic_id in partitions)
    return _Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id])
            )
            for topic, topic_id in topics
            if topic is not None
        ]
    )
