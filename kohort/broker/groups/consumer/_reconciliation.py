"""Reconciliation of a member: from the partitions that it has to its target assignment.

A member first gives up partitions and keeps its epoch. Then it moves to the epoch of the target
assignment and gets those of its new partitions that no other member holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import (
    AssignmentState,
    ConsumerMember,
    PartitionEpochs,
)


def reconcile(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: PartitionSets,
    owned: PartitionSets | None,
    *,
    subscription_changed: bool,
    withheld: Set[tuple[bytes, int]] = frozenset(),
) -> ConsumerMember:
    """Return the member after one step towards its target assignment.

    ``owned`` has the partitions that the client owns, None if it did not say. With
    ``subscription_changed`` the member gives up topics that it does not subscribe to, even without
    a new target assignment. ``withheld`` has partitions, as (topic id, partition), that the member
    cannot get yet, like those of other members.
    """
    epoch = group.assignment_epoch
    if member.is_reconciled_to(epoch) and not subscription_changed:
        return member
    if member.state is AssignmentState.STABLE and member.epoch == epoch:
        return _without_unsubscribed(group, member, owned)
    if member.state is AssignmentState.UNREVOKED_PARTITIONS and _owns_any(
        owned, member.pending_revocation
    ):
        if subscription_changed:
            return _without_unsubscribed(group, member, owned)
        return member
    return _next_assignment(group, member, target, owned, withheld)


def _owns_any(owned: PartitionSets | None, partitions: PartitionEpochs) -> bool:
    """True if the client owns one of the partitions, or did not say what it owns."""
    if owned is None:
        return True
    return any(
        partition in partitions.get(topic_id, {})
        for topic_id, each in owned.items()
        for partition in each
    )


def _moved(
    member: ConsumerMember,
    state: AssignmentState,
    epoch: int,
    assigned: PartitionEpochs,
    pending_revocation: PartitionEpochs,
) -> ConsumerMember:
    return replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def _without_unsubscribed(
    group: ConsumerGroup, member: ConsumerMember, owned: PartitionSets | None
) -> ConsumerMember:
    """Return the member without the topics that it does not subscribe to any longer."""
    subscribed = group.topic_ids_of(member)
    dropped = [topic_id for topic_id in member.assigned if topic_id not in subscribed]
    if not dropped:
        return member
    assigned = {key: epochs for key, epochs in member.assigned.items() if key in subscribed}
    pending: dict[bytes, Mapping[int, int]] = dict(member.pending_revocation)
    for topic_id in dropped:
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if _owns_any(owned, pending):
        return _moved(member, AssignmentState.UNREVOKED_PARTITIONS, member.epoch, assigned, pending)
    return _moved(member, member.state, member.epoch, assigned, member.pending_revocation)


def _next_assignment(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: PartitionSets,
    owned: PartitionSets | None,
    withheld: Set[tuple[bytes, int]],
) -> ConsumerMember:
    subscribed = group.topic_ids_of(member)
    assigned: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    added: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        for partition, epoch in current.items():
            kept = assigned if partition in wanted else revoked
            kept.setdefault(topic_id, {})[partition] = epoch
        for partition in sorted(wanted - current.keys()):
            is_held = group.members.is_held_by_other(topic_id, partition, member.member_id)
            if is_held or (topic_id, partition) in withheld:
                unreleased = True
            else:
                added.setdefault(topic_id, []).append(partition)
    if revoked and _owns_any(owned, revoked):
        state = AssignmentState.UNREVOKED_PARTITIONS
        return _moved(member, state, member.epoch, assigned, revoked)
    for topic_id, partitions in added.items():
        new = dict.fromkeys(partitions, group.assignment_epoch)
        assigned.setdefault(topic_id, {}).update(new)
    state = AssignmentState.UNRELEASED_PARTITIONS if unreleased else AssignmentState.STABLE
    return _moved(member, state, group.assignment_epoch, assigned, {})
