"""Assignor ``uniform`` for members with equal subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from kohort.broker.groups.assignors._member import MemberSpec


def assign_uniform(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> dict[str, dict[bytes, set[int]]]:
    """Assign the same number of partitions to each member, or one more.

    All members are subscribed to all of ``topics``. A member keeps the partitions of its target
    assignment that fit into its quota.
    """
    held = {member_id: _existing(member.target, topics) for member_id, member in members.items()}
    owned = {
        (topic, number) for parts in held.values() for topic in parts for number in parts[topic]
    }
    free = deque(
        (topic, number)
        for topic, partitions in topics.items()
        for number in range(partitions)
        if (topic, number) not in owned
    )
    quota, extra = divmod(sum(topics.values()), max(1, len(members)))
    room: dict[str, int] = {}
    for number, (member_id, parts) in enumerate(held.items()):
        may_have_extra = extra > 0
        left = _keep(parts, quota + may_have_extra, free)
        if left and may_have_extra and len(members) - number > extra:
            # A later member may have more partitions than the quota. It can then keep one more.
            left -= 1
            may_have_extra = False
        extra -= may_have_extra
        room[member_id] = left
    for member_id, left in room.items():
        for _ in range(min(left, len(free))):
            topic, partition = free.popleft()
            held[member_id].setdefault(topic, set()).add(partition)
    return held


def _existing(
    target: Mapping[bytes, frozenset[int]], topics: Mapping[bytes, int]
) -> dict[bytes, set[int]]:
    """Return the partitions of a target assignment that exist, in the order of the topics."""
    return {
        topic: {number for number in target[topic] if 0 <= number < partitions}
        for topic, partitions in topics.items()
        if topic in target
    }


def _keep(parts: dict[bytes, set[int]], quota: int, free: deque[tuple[bytes, int]]) -> int:
    """Keep ``quota`` partitions and add the others to ``free``. Return the unused quota."""
    for topic, numbers in parts.items():
        surplus = sorted(numbers)[quota:]
        numbers.difference_update(surplus)
        free.extend((topic, number) for number in surplus)
        quota -= len(numbers)
    return quota
