"""ShareGroupDescribe (API 77), version 1: state, epochs and members of share groups."""

from __future__ import annotations

from kohort.broker.apis._registry import Context, serves
from kohort.broker.apis.metadata import NOT_REQUESTED
from kohort.broker.groups import ShareGroup, ShareMember
from kohort.broker.security import AclOperation, ResourceType
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse

_Described = ShareGroupDescribeResponse.DescribedGroup
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


@serves(ShareGroupDescribeRequest, (1, 1))
async def share_group_describe(
    ctx: Context, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    described = [_describe(ctx, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ctx.operations(ResourceType.GROUP, group.group_id)
    return ShareGroupDescribeResponse(groups=described)


def _describe(ctx: Context, group_id: str) -> _Described:
    if not ctx.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return _Described(group_id=group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _Described(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    coordinator = ctx.broker.coordinator
    error = coordinator.check(group_id)
    if error is not ErrorCode.NONE:
        return _Described(group_id=group_id, error_code=error)
    group = coordinator.share_groups.get(group_id)
    if group is None:
        other = group_id in coordinator.groups
        return _Described(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {'is not a share group' if other else 'not found'}.",
        )
    if not all(
        ctx.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        for name in group.subscribed_topics
    ):
        return _Described(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=_HIDDEN_TOPICS,
        )
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
