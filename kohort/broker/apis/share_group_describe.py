"""ShareGroupDescribe (API 77), version 1: state, epochs and members of share groups."""

from __future__ import annotations

from kohort.broker.apis._group_descriptions import describe_all, hidden, not_found
from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import NOT_REQUESTED
from kohort.broker.groups import ShareGroup, ShareMember
from kohort.protocol.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse

_Described = ShareGroupDescribeResponse.DescribedGroup


@serves(ShareGroupDescribeRequest, (1, 1))
async def share_group_describe(
    ctx: Context, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    groups = describe_all(
        ctx,
        request.group_ids,
        _Described,
        _describe,
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _describe(ctx: Context, group_id: str) -> _Described:
    coordinator = ctx.broker.coordinator
    group = coordinator.share_groups.get(group_id)
    if group is None:
        problem = "is not a share group" if group_id in coordinator.groups else "not found"
        return not_found(_Described, group_id, problem)
    if entry := hidden(ctx, _Described, group_id, group.subscribed_topics):
        return entry
    return _Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name="simple",
        members=[_member(group, member) for member in group.members.values()],
        authorized_operations=NOT_REQUESTED,
    )


def _member(group: ShareGroup, member: ShareMember) -> ShareGroupDescribeResponse.Member:
    """Return a member with the names of its topics, without topics that do not exist."""
    cls = ShareGroupDescribeResponse
    found = ((group.env.topics.identified(each), each) for each in member.assigned)
    return cls.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=cls.Assignment(
            topic_partitions=[
                cls.TopicPartitions(
                    topic_id=topic_id,
                    topic_name=topic.name,
                    partitions=sorted(member.assigned[topic_id]),
                )
                for topic, topic_id in found
                if topic is not None
            ]
        ),
    )
