"""The leader's duty: have the assignor deal, and take nothing but a proper deal from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.coordinator_client._partition_text import describe
from kohort.coordinator_client.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Steps,
    Subscription,
    finish,
)
from kohort.errors import AssignorError
from kohort.transport import escaped
from kohort.types import TopicPartition

SELF_CHECKING = frozenset({"cooperative-sticky"})
"""Assignors that withhold what has to be given up first, knowing more than a check could."""

_NOTHING = Assignment(())


def check_assignments(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    dealt: Assignments,
    *,
    cooperative: bool,
) -> dict[str, Assignment]:
    """Check an assignment at once; see :func:`check_in_steps`."""
    return finish(check_in_steps(assignor, cluster, members, dealt, cooperative=cooperative))


def check_in_steps(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    dealt: Assignments,
    *,
    cooperative: bool,
) -> Steps[dict[str, Assignment]]:
    """What the assignor dealt, with every member in it. AssignorError for what cannot be.

    Cooperative: a partition may not go straight from one owner to another, as the first gives it
    up only after this rebalance (KIP-429).
    """
    name = assignor.name
    try:
        given: dict[str, Assignment] = {}
        for member, one in dealt.items():
            given[member] = _assignment(one)
            yield
    except (AttributeError, TypeError, ValueError) as error:
        raise AssignorError(
            f"assignor {name!r} returned {type(dealt).__name__}, and not a mapping from member ids "
            f"to lists of TopicPartition, or to Assignment: {error}"
        ) from error
    strangers = given.keys() - members.keys()
    if strangers:
        raise AssignorError(f"assignor {name!r} dealt to nobody: {sorted(map(repr, strangers))}")
    holders: dict[TopicPartition, str] = {}
    for member, dealt_to in given.items():
        yield
        wanted = frozenset(members[member].topics)
        for tp in dealt_to.partitions:
            if tp.topic not in wanted:
                raise AssignorError(
                    f"assignor {name!r} gave {describe([tp])} to {escaped(member)}, which does not "
                    "subscribe to the topic"
                )
            if not 0 <= tp.partition < cluster.partitions.get(tp.topic, 0):
                raise AssignorError(f"assignor {name!r} dealt {describe([tp])}, which is not there")
            if tp in holders:
                raise AssignorError(
                    f"assignor {name!r} gave {describe([tp])} to two: {escaped(holders[tp])} and "
                    f"{escaped(member)}"
                )
            holders[tp] = member
    if cooperative and name not in SELF_CHECKING:
        yield from _check_transfers(name, members, holders)
    return {member: given.get(member, _NOTHING) for member in members}


def _assignment(one: Assignment | Sequence[TopicPartition]) -> Assignment:
    given = one if isinstance(one, Assignment) else Assignment(tuple(one))
    user_data = None if given.user_data is None else bytes(given.user_data)
    return Assignment(tuple(TopicPartition(*tp) for tp in given.partitions), user_data)


def _check_transfers(
    name: str, members: Mapping[str, Subscription], holders: Mapping[TopicPartition, str]
) -> Steps[None]:
    newest = max((said.generation for said in members.values()), default=-1)
    for owner, said in members.items():
        yield
        if said.generation != newest:
            continue
        for tp in said.owned:
            holder = holders.get(tp, owner)
            if holder != owner and tp not in members[holder].owned:
                raise AssignorError(
                    f"assignor {name!r} moved {describe([tp])} from {escaped(owner)} to "
                    f"{escaped(holder)} at once; a cooperative one leaves it out until its owner "
                    "has given it up"
                )
