"""The rebalance, which parks JoinGroup requests and ends with a new generation.

- :func:`prepare_rebalance` starts it.
- A group that was Empty waits for the initial delay, and longer while members join.
- Any other group waits until all members have joined, or for the rebalance timeout.
- :func:`complete_join` removes the members that have not joined. It keeps or elects the leader,
  selects the protocol, increments the generation and sends the JoinGroup responses.
"""

from __future__ import annotations

from kohort.broker.groups.classic._group import ClassicGroup, InitialDelay
from kohort.broker.groups.classic._records import append_group_metadata
from kohort.broker.groups.classic._state import GroupState
from kohort.errors import ErrorCode


def prepare_or_complete(group: ClassicGroup, now: float) -> None:
    """Start a rebalance, or complete the current one if all members have joined.

    A member has joined, changed or left.
    """
    if group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, now)
    else:
        prepare_rebalance(group, now)


def prepare_rebalance(group: ClassicGroup, now: float) -> None:
    """Park JoinGroup requests from now on; members that wait for an assignment rejoin."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
            if group.complete_sync(member, ErrorCode.REBALANCE_IN_PROGRESS):
                group.restart_session(member, now)
    group.cancel("sync")
    initial = group.state is GroupState.EMPTY
    group.transition(GroupState.PREPARING_REBALANCE, now)
    if initial:
        delay = group.env.config.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay, group.rebalance_timeout_ms)
        group.schedule("initial", now, delay)
    elif group.has_all_joined:
        complete_join(group, now)
    else:
        group.schedule("join", now, group.rebalance_timeout_ms)


def on_initial_delay(group: ClassicGroup, now: float) -> None:
    """Complete the join phase, or wait again if a member has joined and time remains."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = None if group.initial_delay is None else group.initial_delay.prolong()
    if delay is None:
        complete_join(group, now)
    else:
        group.schedule("initial", now, delay)


def maybe_complete_join(group: ClassicGroup, now: float) -> None:
    """Complete the join phase if all members have joined and no initial delay is pending."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.initial_delay is None
        and group.has_all_joined
    ):
        complete_join(group, now)


def complete_join(group: ClassicGroup, now: float) -> None:
    """Complete the join phase with the members that have joined."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    group.cancel("join")
    absent = [
        member.member_id
        for member in group.members.values()
        if member.parked_join is None and member.group_instance_id is None
    ]
    for member_id in absent:
        group.remove(member_id)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left and none has rejoined: their sessions decide.
        group.schedule("join", now, group.rebalance_timeout_ms)
        return
    group.generation += 1
    group.pending_syncs.clear()
    if not group.members:
        group.protocol = None
        group.transition(GroupState.EMPTY, now)
        append_group_metadata(group, {})
        return
    group.protocol = group.select_protocol()
    group.transition(GroupState.COMPLETING_REBALANCE, now)
    for member in group.members.values():
        leads = member.member_id == group.leader
        group.respond_join(member, group.generation_response(member, with_members=leads))
        group.restart_session(member, now)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    group.schedule("sync", now, group.rebalance_timeout_ms)


def on_sync_timeout(group: ClassicGroup, now: float) -> None:
    """Remove the members that have not sent SyncGroup."""
    if not group.pending_syncs or group.state not in (
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    ):
        return
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
    prepare_rebalance(group, now)


def on_session_timeout(group: ClassicGroup, member_id: str, now: float) -> None:
    """Remove a member or a pending member id after its session timeout."""
    if member_id in group.pending_joins:
        group.pending_joins.discard(member_id)
        maybe_complete_join(group, now)
        return
    member = group.members.get(member_id)
    if member is None or member.ignores_session_timeout:
        return
    group.remove(member_id)
    if group.state in (
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.PREPARING_REBALANCE,
    ):
        prepare_or_complete(group, now)
