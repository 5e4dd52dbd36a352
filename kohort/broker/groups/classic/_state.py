"""The states of a classic group and the transitions between them."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """State of a group; the values are Kafka's names, as DescribeGroups shows them.

    ``EMPTY``: no members, maybe committed offsets. The first join starts a rebalance.

    ``PREPARING_REBALANCE``: JoinGroup requests are parked until every known member has sent one, or
    the largest rebalance timeout of the members has passed.

    ``COMPLETING_REBALANCE``: a new generation has started, and members wait for the leader's
    SyncGroup with the assignment.

    ``STABLE``: the members have their assignments.

    ``DEAD``: deleted. Clients that still use the group get an error and look it up again.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_E, _P, _C, _S, _D = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    _E: frozenset({_P, _D}),
    _P: frozenset({_E, _C, _D}),
    _C: frozenset({_S, _P, _D}),
    _S: frozenset({_P, _D}),
    _D: frozenset(),
}
"""State -> the possible next states."""
