"""Assignors of the coordinator: ``uniform`` and ``range``, as Kafka 4.3 computes them.

``simple`` is that of share groups.

No assignor uses racks. All ties are broken by the order of the mappings that they get, so equal
arguments give equal assignments.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.broker.groups.assignors._member import Assignment, MemberSpec
from kohort.broker.groups.assignors._mixed import assign_mixed
from kohort.broker.groups.assignors._range import assign_range
from kohort.broker.groups.assignors._simple import assign_simple
from kohort.broker.groups.assignors._uniform import assign_uniform

__all__ = ["ASSIGNORS", "Assignment", "MemberSpec", "assign", "assign_simple"]

ASSIGNORS = ("uniform", "range")
"""Names of the assignors. A group without a choice uses the first one."""


def assign(
    name: str, members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Return the target assignment of each member.

    ``topics`` has the number of partitions by topic id. Topics that are not in it are left out. A
    member without a subscribed topic gets no partitions. KeyError for an unknown assignor.
    """
    assignors = {"uniform": _assign_uniform, "range": assign_range}
    assigned = assignors[name](members, topics)
    return {
        member_id: {topic: frozenset(held) for topic, held in parts.items() if held}
        for member_id, parts in assigned.items()
    }


def _assign_uniform(
    members: Mapping[str, MemberSpec], topics: Mapping[bytes, int]
) -> dict[str, dict[bytes, set[int]]]:
    subscriptions = [member.subscribed & topics.keys() for member in members.values()]
    if any(each != subscriptions[0] for each in subscriptions):
        return assign_mixed(members, topics)
    subscribed = subscriptions[0] if subscriptions else frozenset()
    return assign_uniform(members, {id_: n for id_, n in topics.items() if id_ in subscribed})
