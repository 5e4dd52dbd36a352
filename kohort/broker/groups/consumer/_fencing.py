"""Members that leave a consumer group, or that are removed because a timeout has passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import STATIC_LEAVE_EPOCH, ConsumerMember
from kohort.broker.groups.consumer._records import (
    delete_member,
    set_assignment_epoch,
    set_current,
    set_epoch,
)
from kohort.broker.groups.consumer._subscriptions import delete_unused_regexes, metadata_hash


def remove_members(group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Remove members and increment the group epoch.

    The next heartbeat of another member computes the target assignment. A group without members
    has its target assignment, which is empty.
    """
    for member in members:
        group.stop_member_timers(member.member_id)
        delete_member(group, member.member_id)
    delete_unused_regexes(group, [member.topic_regex for member in members])
    group.topics_version = group.env.topics.version
    set_epoch(group, group.epoch + 1, metadata_hash(group))
    if not group.members:
        set_assignment_epoch(group, group.epoch, 0)


def suspend_static(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Mark a static member as away. It keeps its partitions until its session ends."""
    assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()}
    away = replace(
        member,
        epoch=STATIC_LEAVE_EPOCH,
        assigned=assigned,
        pending_revocation={},
    )
    set_current(group, away)
