"""Assignor ``range``: a run of partitions of each topic for each subscriber."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.groups.assignors._member import MemberSpec


def assign_range(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> dict[str, dict[bytes, set[int]]]:
    """Assign runs of partitions to the members in the order of their ids.

    Static members come first, by instance id. The target assignments have no effect.
    """
    order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    assigned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    for topic, partitions in topics.items():
        subscribers = [each for each in order if topic in members[each].subscribed]
        if not subscribers:
            continue
        quota, extra = divmod(partitions, len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + quota + (number < extra)
            assigned[member_id][topic] = set(range(start, end))
            start = end
    return assigned


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    """Return the key of a member in the order of Java's strings."""
    name = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")
