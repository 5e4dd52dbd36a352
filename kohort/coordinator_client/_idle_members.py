"""The check whether a member is idle, because the group has more members than partitions."""

from __future__ import annotations

from collections.abc import Collection

from kohort.coordinator_client._coordinator import CoordinatorConnection, RequestForm
from kohort.protocol.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.types import TopicPartition

_Group = ConsumerGroupDescribeResponse.DescribedGroup


async def all_are_assigned_to_others(
    coordinator: CoordinatorConnection,
    group_id: str,
    member_id: str,
    partitions: Collection[TopicPartition],
    timeout: float,
) -> bool:
    """True if the coordinator has assigned all these partitions to other members.

    ``timeout`` limits the request, in seconds. The result is False for a group that the coordinator
    does not describe, such as without DESCRIBE on one of its topics.
    """
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    response = await coordinator.request([RequestForm(request)], timeout=timeout)
    return any(
        group.group_id == group_id
        and not group.error_code
        and _is_idle(group, member_id, partitions)
        for group in response.groups
    )


def _is_idle(group: _Group, member_id: str, partitions: Collection[TopicPartition]) -> bool:
    """True if the assignment of the group's latest epoch leaves nothing to this member.

    The assignment of an earlier epoch may leave out a new member or a new topic.
    """
    assigned = {
        TopicPartition(topic.topic_name, number): member.member_id
        for member in group.members
        for topic in member.target_assignment.topic_partitions
        for number in topic.partitions
    }
    is_latest = group.assignment_epoch == group.group_epoch
    is_member = any(member.member_id == member_id for member in group.members)
    has_none = member_id not in assigned.values()
    return is_latest and is_member and has_none and assigned.keys() >= set(partitions)
