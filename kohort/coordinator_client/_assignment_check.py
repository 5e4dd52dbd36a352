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

_NO_PARTITIONS = Assignment(())


def check_assignments(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    assignments: Assignments,
    *,
    cooperative: bool,
) -> dict[str, Assignment]:
    """Check an assignment at once; see :func:`check_in_steps`."""
    return finish(check_in_steps(assignor, cluster, members, assignments, cooperative=cooperative))


def check_in_steps(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    assignments: Assignments,
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
        for member, one in assignments.items():
            given[member] = _to_assignment(one)
            yield
    except (AttributeError, TypeError, ValueError) as error:
        raise AssignorError(
            f"assignor {name!r} returned {type(assignments).__name__}, and not a mapping from "
            f"member ids to lists of TopicPartition, or to Assignment: {error}"
        ) from error
    unknown_members = given.keys() - members.keys()
    if unknown_members:
        raise AssignorError(
            f"assignor {name!r} dealt to nobody: {sorted(map(repr, unknown_members))}"
        )
    new_owners: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        yield
        topics = frozenset(members[member].topics)
        for tp in assignment.partitions:
            if tp.topic not in topics:
                raise AssignorError(
                    f"assignor {name!r} gave {describe([tp])} to {escaped(member)}, which does not "
                    "subscribe to the topic"
                )
            if not 0 <= tp.partition < cluster.partitions.get(tp.topic, 0):
                raise AssignorError(f"assignor {name!r} dealt {describe([tp])}, which is not there")
            if tp in new_owners:
                raise AssignorError(
                    f"assignor {name!r} gave {describe([tp])} to two: "
                    f"{escaped(new_owners[tp])} and {escaped(member)}"
                )
            new_owners[tp] = member
    if cooperative and name not in SELF_CHECKING:
        yield from _check_transfers(name, members, new_owners)
    return {member: given.get(member, _NO_PARTITIONS) for member in members}


def _to_assignment(one: Assignment | Sequence[TopicPartition]) -> Assignment:
    given = one if isinstance(one, Assignment) else Assignment(tuple(one))
    user_data = None if given.user_data is None else bytes(given.user_data)
    return Assignment(tuple(TopicPartition(*tp) for tp in given.partitions), user_data)


def _check_transfers(
    name: str, members: Mapping[str, Subscription], new_owners: Mapping[TopicPartition, str]
) -> Steps[None]:
    newest = max((subscription.generation for subscription in members.values()), default=-1)
    for owner, subscription in members.items():
        yield
        if subscription.generation != newest:
            continue
        for tp in subscription.owned:
            new_owner = new_owners.get(tp, owner)
            if new_owner != owner and tp not in members[new_owner].owned:
                raise AssignorError(
                    f"assignor {name!r} moved {describe([tp])} from {escaped(owner)} to "
                    f"{escaped(new_owner)} at once; a cooperative one leaves it out until its "
                    "owner has given it up"
                )
