"""ConsumerGroupHeartbeat: a member joins, reports what it owns, and learns its assignment.

No request waits in a group of the consumer protocol. A heartbeat does these steps, in one batch of
records:

1. ``_validation`` and ``_member_lookup`` check the request, before anything changes.
2. ``_subscriptions`` starts a new group epoch if subscriptions or topics have changed. It resolves
   patterns after the response.
3. ``_target_assignment`` runs the assignor if the epoch is new and the interval has passed.
4. ``_reconciliation`` moves the member one step towards its target assignment.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from kohort.broker.groups._member import PartitionSets
from kohort.broker.groups.classic._join import Caller
from kohort.broker.groups.consumer._group import ConsumerGroup
from kohort.broker.groups.consumer._member import (
    AssignmentState,
    ConsumerMember,
    unite,
)
from kohort.broker.groups.consumer._member_lookup import (
    check_epoch,
    check_room,
    check_state,
    former_partitions,
    joining_member,
    new_member_id,
    present_member,
    replace_static,
)
from kohort.broker.groups.consumer._reconciliation import reconcile
from kohort.broker.groups.consumer._records import set_current, set_member
from kohort.broker.groups.consumer._subscriptions import (
    RegexChange,
    check_regex,
    update_epoch,
    update_regexes,
)
from kohort.broker.groups.consumer._target_assignment import update_target
from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_Response = ConsumerGroupHeartbeatResponse


def heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: float
) -> ConsumerGroupHeartbeatResponse:
    """Handle a heartbeat of a member that joins or stays.

    GroupRequestError is raised before anything changes.
    """
    owned = _owned(request.topic_partitions)
    joins = request.member_epoch == 0
    check_room(group, request.member_id, request.instance_id)
    replaced = None
    if joins:
        found, replaced = joining_member(
            group,
            request.member_id or new_member_id(group),
            request.instance_id,
            uses_classic=False,
        )
    else:
        found = present_member(group, request.member_id, request.instance_id)
        check_epoch(found, request.member_epoch, owned)
        check_state(found, owned)
    member = _updated(found, request, caller)
    if member.topic_regex != found.topic_regex:
        check_regex(group, member.topic_regex)
    withheld: Set[tuple[bytes, int]] = frozenset()
    assignor_changed = group.changes_assignor(found, member)
    if replaced is not None:
        withheld = former_partitions(group, found.member_id, replaced)
        replace_static(group, replaced, found)
    # As in Kafka, a known member that joins with a new instance id has no target before the next.
    has_target = member.instance_id is None or group.static_member(member.instance_id) is not None
    changed = update_member(group, found, member, caller, now, assignor_changed=assignor_changed)
    is_new_target = update_target(group, now)
    target = group.targets.get(member.member_id, {}) if has_target or is_new_target else {}
    member = reconcile_member(
        group, member, target, owned, now, subscription_changed=changed, withheld=withheld
    )
    for kind in ("member-join", "member-sync"):
        # Only a classic member has them, which this heartbeat turns into a consumer member.
        group.cancel(kind, member.member_id)
    group.restart_session(member, now)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and owned is not None
    )
    response = _Response(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=group.env.group_settings(
            group.group_id
        ).consumer_heartbeat_interval_ms,
    )
    if joins or is_full or _has_changed_partitions(found, member):
        response.assignment = _assignment(member)
    return response


def update_member(
    group: ConsumerGroup,
    before: ConsumerMember,
    member: ConsumerMember,
    caller: Caller,
    now: float,
    *,
    assignor_changed: bool = False,
) -> bool:
    """Store a changed member, and start a new group epoch if that is needed.

    With ``assignor_changed`` it is needed, because most members now name another assignor.

    Return True if the member's subscription has changed.
    """
    if member != before:
        set_member(group, member)
    names_changed = member.topic_names != before.topic_names
    regex_change = update_regexes(group, before, member, caller, now)
    resolved = regex_change is RegexChange.CHANGED_AND_RESOLVED
    update_epoch(group, subscriptions_changed=names_changed or resolved or assignor_changed)
    return names_changed or regex_change is not RegexChange.NONE


def reconcile_member(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: PartitionSets,
    owned: PartitionSets | None,
    now: float,
    *,
    subscription_changed: bool,
    withheld: Set[tuple[bytes, int]] = frozenset(),
) -> ConsumerMember:
    """Move a member towards its target assignment, and start or stop its rebalance timeout.

    ``withheld`` has partitions, as (topic id, partition), that the member cannot get yet.
    """
    moved = reconcile(
        group, member, target, owned, subscription_changed=subscription_changed, withheld=withheld
    )
    if moved == member:
        return member
    set_current(group, moved)
    if moved.state is not AssignmentState.UNREVOKED_PARTITIONS:
        # Also for a classic member, which may have been a consumer member until now.
        group.cancel("rebalance", moved.member_id)
    elif moved.classic is None:
        group.schedule("rebalance", now, moved.rebalance_timeout_ms, moved.member_id)
    return moved


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member with the fields that the request sets; null leaves a field as it is."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _owned(
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> PartitionSets | None:
    if topic_partitions is None:
        return None
    return unite((bytes(each.topic_id), each.partitions) for each in topic_partitions)


def _has_changed_partitions(before: ConsumerMember, member: ConsumerMember) -> bool:
    is_same = before.assigned is member.assigned
    return not is_same and _partitions(before) != _partitions(member)


def _partitions(member: ConsumerMember) -> PartitionSets:
    return {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}


def _assignment(member: ConsumerMember) -> _Response.Assignment:
    return _Response.Assignment(
        topic_partitions=[
            _Response.TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in member.assigned.items()
        ]
    )
