"""The leader's check of the assignment that an assignor returned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.coordinator_client.assignors import (
    Assignment,
    Assignments,
    ClusterTopics,
    PartitionAssignor,
    Steps,
    Subscription,
    finish,
)
from kohort.coordinator_client.machine._partition_text import describe
from kohort.errors import AssignorError
from kohort.transport import escaped
from kohort.types import TopicPartition

SELF_CHECKING = frozenset({"cooperative-sticky"})
"""Assignors that leave out partitions which their owners must revoke first.

They use more of the members' metadata than the check does, so the check skips them.
"""

_NO_PARTITIONS = Assignment(())


def check_assignments(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    assignments: Assignments,
    *,
    cooperative: bool,
) -> dict[str, Assignment]:
    """Check an assignment without a pause; see :func:`check_in_steps`."""
    return finish(check_in_steps(assignor, cluster, members, assignments, cooperative=cooperative))


def check_in_steps(
    assignor: PartitionAssignor,
    cluster: ClusterTopics,
    members: Mapping[str, Subscription],
    assignments: Assignments,
    *,
    cooperative: bool,
) -> Steps[dict[str, Assignment]]:
    """Return the assignment with an entry for every member. Raise AssignorError if it is invalid.

    In a cooperative group a partition may not move directly from one owner to another. Its owner
    revokes it only after this rebalance (KIP-429).
    """
    name = assignor.name
    try:
        given: dict[str, Assignment] = {}
        for member, one in assignments.items():
            given[member] = _to_assignment(one)
            yield
    except (AttributeError, TypeError, ValueError) as error:
        raise AssignorError(
            f"assignor {name!r} returned an invalid {type(assignments).__name__}: {error}. Return "
            "a mapping from member id to a list of TopicPartition or to an Assignment"
        ) from error
    unknown_members = given.keys() - members.keys()
    if unknown_members:
        raise AssignorError(
            f"assignor {name!r} assigned partitions to unknown members: "
            f"{', '.join(sorted(map(repr, unknown_members)))}. Assign partitions only to member "
            "ids of the subscriptions"
        )
    new_owners: dict[TopicPartition, str] = {}
    for member, assignment in given.items():
        yield
        topics = frozenset(members[member].topics)
        for tp in assignment.partitions:
            if tp.topic not in topics:
                raise AssignorError(
                    f"assignor {name!r} assigned {describe([tp])} to {escaped(member)}, which does "
                    "not subscribe to the topic. Assign only topics of the member's subscription"
                )
            if not 0 <= tp.partition < cluster.partitions.get(tp.topic, 0):
                raise AssignorError(
                    f"assignor {name!r} assigned {describe([tp])}, which does not exist. Assign "
                    "only partitions of the given cluster"
                )
            if tp in new_owners:
                raise AssignorError(
                    f"assignor {name!r} assigned {describe([tp])} to two members: "
                    f"{escaped(new_owners[tp])} and {escaped(member)}. Assign it to one of them"
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
                    f"{escaped(new_owner)} in one rebalance. A cooperative assignor must leave it "
                    "out until its owner has revoked it"
                )
