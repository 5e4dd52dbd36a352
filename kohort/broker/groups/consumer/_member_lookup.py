"""The member that a heartbeat is for: found, created, or put in the place of a static one."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Set
from dataclasses import replace

from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import (
    STATIC_LEAVE_EPOCH,
    AssignmentState,
    ConsumerMember,
)
from kohort.broker.groups.consumer._records import (
    delete_member,
    set_current,
    set_member,
    set_target,
)
from kohort.errors import ErrorCode


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise GROUP_MAX_SIZE_REACHED if the group is full and the member is not in it.

    A member with a known instance id takes the place of a static member.
    """
    if group.static_member(instance_id) is not None:
        return
    limit = group.env.group_settings(group.group_id).consumer_max_size
    if len(group.members) >= limit and member_id not in group.members:
        raise GroupRequestError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def new_member_id(group: ConsumerGroup) -> str:
    """Return a member id as a broker makes it: a random UUID in URL-safe base64."""
    while True:
        unique = uuid.UUID(int=group.env.rng.getrandbits(128), version=4).bytes
        text = base64.urlsafe_b64encode(unique).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def known_static_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """Return the member with this instance id, or raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise GroupRequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
        )
    if member.member_id != member_id:
        raise GroupRequestError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def present_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return a member by its member id, which must match the instance id if there is one."""
    if instance_id is None:
        return group.known_member(member_id)
    return known_static_member(group, member_id, instance_id)


def joining_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, uses_classic: bool
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Return the member that joins, and the static member that it replaces.

    UNRELEASED_INSTANCE_ID is raised if a member of the consumer protocol still has the instance id.
    """
    before = group.static_member(instance_id)
    if before is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if not uses_classic and before.classic is None and before.epoch != STATIC_LEAVE_EPOCH:
        raise GroupRequestError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {before.member_id} member.",
        )
    return replace(before, member_id=member_id, epoch=0, previous_epoch=0), before


def former_partitions(
    group: ConsumerGroup, member_id: str, before: ConsumerMember
) -> Set[tuple[bytes, int]]:
    """Return what a member that takes the place of a static one held so far.

    These are (topic id, partition). Kafka reconciles the member with the group as it was before the
    heartbeat. So the member cannot get these partitions yet.
    """
    former = group.members.get(member_id)
    return frozenset() if former is None or former is before else frozenset(former.held)


def replace_static(group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember) -> None:
    """Put a member in the place of a static one, which loses its id and its timers."""
    target = group.targets.get(before.member_id, {})
    group.stop_member_timers(before.member_id)
    delete_member(group, before.member_id)
    set_member(group, member)
    set_target(group, member.member_id, target)
    set_current(group, member)


def check_epoch(member: ConsumerMember, epoch: int, owned: PartitionSets | None) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the epoch is the member's.

    The previous epoch is accepted with partitions that the member has, because the response with
    the new epoch may have been lost.
    """
    if epoch > member.epoch:
        compared = "greater"
    elif epoch == member.epoch or (
        epoch == member.previous_epoch and _is_subset(owned, member.assigned)
    ):
        return
    else:
        compared = "smaller"
    raise GroupRequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {compared} member epoch ({epoch}) than the one "
        + f"known by the group coordinator ({member.epoch}). "
        + "The member must abandon all its partitions and rejoin.",
    )


def check_state(member: ConsumerMember, owned: PartitionSets | None) -> None:
    """Raise FENCED_MEMBER_EPOCH for a member in an unknown state that may own partitions."""
    if member.state is AssignmentState.UNKNOWN and (owned is None or owned):
        raise GroupRequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )


def _is_subset(owned: PartitionSets | None, assigned: Mapping[bytes, Mapping[int, int]]) -> bool:
    if owned is None:
        return False
    return all(
        partition in assigned.get(topic_id, {})
        for topic_id, partitions in owned.items()
        for partition in partitions
    )
