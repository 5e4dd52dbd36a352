"""Assignor ``simple`` of share groups (KIP-932): it spreads members over partitions.

A partition may have several members, because the leader hands out each record to one of them. With
P partitions and N members, each partition gets S = ceil(N / P) members. A member gets its quota of
the S * P places, which is the same number for all members, or one more. So with few members each
partition has one member, and with many members each member has at least one partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from kohort.broker.groups.assignors._member import Assignment, MemberSpec
from kohort.types import NamedTuple


class _Place(NamedTuple):
    topic_id: bytes
    partition: int


def assign_simple(
    members: Mapping[str, MemberSpec], assignable: Mapping[bytes, frozenset[int]]
) -> dict[str, Assignment]:
    """Return the target assignment of each member.

    ``assignable`` has the partitions that members may get, by topic id. Members with equal
    subscriptions share all their partitions. Otherwise each topic is assigned alone.
    """
    held: dict[str, set[_Place]] = {member_id: set() for member_id in members}
    subscriptions = {member.subscribed for member in members.values()}
    if len(subscriptions) == 1:
        (topics,) = subscriptions
        rounds = [[topic_id for topic_id in assignable if topic_id in topics]]
    else:
        rounds = [[topic_id] for topic_id in assignable]
    for topic_ids in rounds:
        subscribers = {
            member_id: member
            for member_id, member in members.items()
            if member.subscribed.issuperset(topic_ids)
        }
        places = [
            _Place(topic_id, partition)
            for topic_id in topic_ids
            for partition in sorted(assignable[topic_id])
        ]
        if places and subscribers:
            for member_id, mine in _assign_places(subscribers, places).items():
                held[member_id] |= mine
    return {member_id: _by_topic(places) for member_id, places in held.items()}


def _by_topic(places: set[_Place]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in places:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def _assign_places(
    members: Mapping[str, MemberSpec], places: list[_Place]
) -> dict[str, set[_Place]]:
    """Give each place the same number of members, and keep what members have within quotas."""
    sharing = -(-len(members) // len(places))
    quotas = _quotas(list(members), sharing * len(places))
    known = set(places)
    held: dict[str, set[_Place]] = {}
    sharers: dict[_Place, list[str]] = {place: [] for place in places}
    for member_id, member in members.items():
        mine = sorted(
            known.intersection(
                _Place(topic_id, partition)
                for topic_id, partitions in member.target.items()
                for partition in partitions
            )
        )
        held[member_id] = set()
        for place in mine:
            if len(held[member_id]) < quotas[member_id] and len(sharers[place]) < sharing:
                held[member_id].add(place)
                sharers[place].append(member_id)
    unfilled = deque(member_id for member_id in members if len(held[member_id]) < quotas[member_id])
    for place in places:
        skipped: list[str] = []
        while unfilled and len(sharers[place]) < sharing:
            member_id = unfilled.popleft()
            if place in held[member_id]:
                skipped.append(member_id)
                continue
            held[member_id].add(place)
            sharers[place].append(member_id)
            if len(held[member_id]) < quotas[member_id]:
                unfilled.append(member_id)
        unfilled.extendleft(reversed(skipped))
    return held


def _quotas(member_ids: list[str], total: int) -> dict[str, int]:
    """Return the number of places of each member, as equal as possible."""
    count = len(member_ids)
    ends = [-(-total * number // count) for number in range(count + 1)]
    return {
        member_id: ends[number + 1] - ends[number] for number, member_id in enumerate(member_ids)
    }
