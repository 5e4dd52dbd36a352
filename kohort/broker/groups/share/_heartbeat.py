"""ShareGroupHeartbeat: a member joins or stays, and learns its assignment.

A heartbeat does these steps, in one batch of records:

1. It checks the request, before anything changes.
2. It starts a new group epoch if subscriptions, topics or initialized partitions have changed.
3. It runs the assignor if the epoch is new and the assignment interval has passed.
4. The member takes its target assignment at once. Nothing is revoked, because the leaders of the
   partitions have the locks of records.

Partitions are initialized after the response (:mod:`_states`). So a later heartbeat assigns them.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.assignors import MemberSpec, assign_simple
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.consumer._subscriptions import topics_hash
from kohort.broker.groups.share._group import ShareGroup, ShareMember
from kohort.broker.groups.share._records import (
    delete_member,
    set_assignment_epoch,
    set_current,
    set_epoch,
    set_member,
    set_target,
)
from kohort.errors import ErrorCode
from kohort.protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

LEAVE_EPOCH = -1
MAX_MEMBER_ID = 36
"""Longest id of a member, the length of a UUID."""


def validate(request: ShareGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a heartbeat that no group accepts."""
    if not 0 < len(request.member_id) <= MAX_MEMBER_ID:
        raise _invalid()
    _check_filled(request.member_id, "MemberId can't be empty.")
    _check_filled(request.group_id, "GroupId can't be empty.")
    _check_filled(request.rack_id, "RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")


def _check_filled(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str | None = None) -> GroupRequestError:
    return GroupRequestError(ErrorCode.INVALID_REQUEST, message)


def heartbeat(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, caller: Caller, now: float
) -> ShareGroupHeartbeatResponse:
    """Handle a heartbeat of a member that joins or stays.

    GroupRequestError is raised before anything changes.
    """
    settings = group.env.group_settings(group.group_id)
    limit = settings.share_max_size
    if request.member_id not in group.members and len(group.members) >= limit:
        raise GroupRequestError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {limit} members.",
        )
    if request.member_epoch == 0:
        found = group.members.get(request.member_id) or ShareMember(request.member_id)
    else:
        found = group.known_member(request.member_id)
        _check_epoch(found, request.member_epoch)
    names = request.subscribed_topic_names
    member = replace(
        found,
        rack_id=found.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=found.topic_names if names is None else frozenset(names),
    )
    if member != found or member.member_id not in group.members:
        set_member(group, member)
    _update_epoch(group, names_changed=member.topic_names != found.topic_names)
    _update_target(group, now)
    member = _reconcile(group, member)
    group.restart_session(member.member_id, now)
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.share_heartbeat_interval_ms,
    )
    if request.member_epoch == 0 or names is not None or member.assigned != found.assigned:
        cls = ShareGroupHeartbeatResponse
        response.assignment = cls.Assignment(
            topic_partitions=[
                cls.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        )
    return response


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's present or previous one."""
    if epoch in (member.epoch, member.previous_epoch):
        return
    known = f"({epoch}) than the one known by the group coordinator ({member.epoch})"
    if epoch > member.epoch:
        detail = f"greater member epoch {known}. "
    else:
        detail = (
            f"smaller member epoch {known}, and it does not match the previous member epoch "
            f"({member.previous_epoch}). "
        )
    raise GroupRequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {detail}"
        "The member must abandon all its partitions and rejoin.",
    )


def _update_epoch(group: ShareGroup, *, names_changed: bool) -> None:
    new_hash = metadata_hash(group)
    if names_changed or new_hash != group.metadata_hash or _lacks_partitions(group):
        set_epoch(group, group.epoch + 1, new_hash)


def _lacks_partitions(group: ShareGroup) -> bool:
    """True if the target assignment is not that of the initialized partitions.

    It is False while a new target assignment is due anyway.
    """
    if group.epoch > group.assignment_epoch:
        return False
    assigned: dict[bytes, frozenset[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | partitions
    return assigned != group.assignable()


def metadata_hash(group: ShareGroup) -> int:
    """Return the hash of the subscribed topics that exist, and their partitions."""
    topics = group.env.topics
    names = [name for name in group.subscribed_topics if topics.named(name) is not None]
    return topics_hash(group.env, names)


def _update_target(group: ShareGroup, now: float) -> None:
    """Compute a new target assignment if the group epoch is newer than the present one."""
    if group.epoch <= group.assignment_epoch:
        return
    now_ms = group.env.wall_ms(now)
    interval_ms = group.env.group_settings(group.group_id).share_assignment_interval_ms
    if group.assigned_at_ms and now_ms < group.assigned_at_ms + interval_ms:
        return
    members = {
        member_id: MemberSpec(
            instance_id=None,
            subscribed=group.topic_ids_of(member),
            target=group.targets.get(member_id, {}),
        )
        for member_id, member in group.members.items()
    }
    for member_id, target in assign_simple(members, group.assignable()).items():
        if target != group.targets.get(member_id):
            set_target(group, member_id, target)
    set_assignment_epoch(group, group.epoch, now_ms)


def _reconcile(group: ShareGroup, member: ShareMember) -> ShareMember:
    """Give a member its target assignment, without topics that it no longer names."""
    subscribed = group.topic_ids_of(member)
    target = group.targets.get(member.member_id, {})
    assigned = {
        topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed
    }
    if member.epoch == group.assignment_epoch and assigned == member.assigned:
        return member
    epoch, previous = group.assignment_epoch, member.previous_epoch
    moved = replace(
        member,
        epoch=epoch,
        previous_epoch=previous if member.epoch == epoch else member.epoch,
        assigned=assigned,
    )
    set_current(group, moved)
    return moved


def remove_member(group: ShareGroup, member_id: str) -> None:
    """Remove a member and start a new group epoch.

    The next heartbeat of another member computes the target assignment. The locks of the member
    stay with the leaders of the partitions.
    """
    group.cancel("share-session", member_id)
    delete_member(group, member_id)
    set_epoch(group, group.epoch + 1, metadata_hash(group))
    if not group.members:
        set_assignment_epoch(group, group.epoch, 0)
