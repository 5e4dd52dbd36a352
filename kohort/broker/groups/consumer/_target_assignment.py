"""The target assignment of a consumer group, which the heartbeat of any member computes."""

from __future__ import annotations

from kohort.broker.groups.assignors import MemberSpec, assign
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._records import set_assignment_epoch, set_target


def update_target(group: ConsumerGroup, now: float) -> bool:
    """Compute a new target assignment if the group epoch is newer than the present one.

    It waits until the assignment interval has passed since the last computation. Return True if
    there is a new one.
    """
    if group.epoch <= group.assignment_epoch:
        return False
    now_ms = group.env.wall_ms(now)
    interval_ms = group.env.group_settings(group.group_id).consumer_assignment_interval_ms
    if group.assigned_at_ms and now_ms < group.assigned_at_ms + interval_ms:
        return False
    found = (group.env.topics.named(name) for name in sorted(group.subscribed_topics))
    topics = {topic.topic_id: len(topic.racks) for topic in found if topic is not None}
    members = {
        member_id: MemberSpec(
            instance_id=member.instance_id,
            subscribed=group.topic_ids_of(member),
            target=group.targets.get(member_id, {}),
        )
        for member_id, member in group.members.items()
    }
    for member_id, target in assign(group.assignor_name, members, topics).items():
        if target != group.targets.get(member_id):
            set_target(group, member_id, target)
    set_assignment_epoch(group, group.epoch, now_ms)
    return True
