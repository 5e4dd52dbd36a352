"""The owners of the partitions before an assignment, from the members' claims.

Claims of members can contradict one another. :func:`resolve_ownership` decides between them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator_client.assignors._base import Subscription
from kohort.coordinator_client.assignors._slices import Steps
from kohort.coordinator_client.assignors._user_data import NO_GENERATION, Claim
from kohort.types import TopicPartition


class Ownership:
    """The existing partitions that the members owned before this assignment."""

    __slots__ = ("contested", "former_owners", "owned")

    def __init__(self) -> None:
        self.owned: dict[str, dict[TopicPartition, None]] = {}
        """Partitions by member, in the order of its claim."""
        self.contested: set[TopicPartition] = set()
        """Partitions that two members claim for one generation.

        Both may still read them, so a cooperative assignment must not move them in one rebalance.
        """
        self.former_owners: dict[TopicPartition, str] = {}
        """The latest owner by partition, among the members without the newest generation."""


def resolve_ownership(
    counts: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    claims: Mapping[str, Claim],
) -> Steps[Ownership]:
    """Choose for each partition the claim with the newest generation.

    ``counts`` has the numbers of partitions by topic. Claims of other partitions are ignored.
    """
    result = Ownership()
    owners: dict[TopicPartition, str] = {}
    for member, claim in claims.items():
        mine = result.owned[member] = {}
        generation = NO_GENERATION if claim.generation is None else claim.generation
        for tp in claim.partitions:
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            other = owners.get(tp)
            if other is None:
                mine[tp] = None
                owners[tp] = member
                continue
            # Java takes the other generation from the subscription, not from its user data.
            theirs = subscriptions[other].generation
            if generation < theirs:
                continue
            result.owned[other].pop(tp, None)
            owners[tp] = member
            if generation == theirs:
                result.contested.add(tp)
            else:
                mine[tp] = None
        yield
    result.former_owners = yield from _former_owners(claims)
    return result


def _former_owners(claims: Mapping[str, Claim]) -> Steps[dict[TopicPartition, str]]:
    newest = max((c.generation for c in claims.values() if c.generation is not None), default=-1)
    newest = max(newest, NO_GENERATION)
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, claim in claims.items():
        generation = NO_GENERATION if claim.generation is None else claim.generation
        if generation >= newest:
            continue
        for tp in claim.partitions:
            if tp not in found or generation > found[tp][0]:
                found[tp] = (generation, member)
        yield
    return {tp: member for tp, (_, member) in found.items()}
