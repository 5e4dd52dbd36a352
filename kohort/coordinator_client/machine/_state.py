"""The states of a group member and the transitions between them.

Both group protocols share the states. Each membership uses the states that it needs.
"""

from __future__ import annotations

from enum import Enum

from kohort.logs import get_logger

logger = get_logger(__name__)


class MemberState(Enum):
    """The state of a member in its group."""

    UNSUBSCRIBED = "unsubscribed"
    """The state without a subscription, before joining and after leaving. The coordinator does not
    know this consumer, or removes it after its session."""

    JOIN_PENDING = "join pending"
    """A wait until the caller is inside poll(), because a callback may come before JoinGroup. After
    a rebalance request or a changed subscription the member still has a generation. Then it owns
    its partitions, keeps reading and committing, and sends heartbeats. Before a first join or after
    a lost membership it sends nothing."""

    REVOKING = "revoking"
    """A callback before JoinGroup that runs on the caller's thread. It is ``on_revoked`` for the
    partitions of an eager member and for unsubscribed topics, or ``on_lost`` without a generation.
    The partitions stay owned until the callback has ended, so that it can commit."""

    JOINING = "joining"
    """A JoinGroup in flight, which the coordinator delays until all members have joined, or a pause
    before its retry. It continues when the caller leaves poll(). A cooperative member keeps its
    partitions."""

    ASSIGNING = "assigning"
    """A run of the assignor on the leader of the generation, for which the other members wait."""

    SYNCING = "syncing"
    """A SyncGroup in flight, which waits for the leader's assignment."""

    RECONCILING = "reconciling"
    """The callbacks for a received assignment, which run inside poll(). A cooperative member first
    revokes partitions, then gets the new ones."""

    ACKNOWLEDGING = "acknowledging"
    """A heartbeat with the owned partitions, sent after the callbacks. Then the coordinator gives
    revoked partitions to their new owners. Only a member of a consumer group has this state."""

    STABLE = "stable"
    """The state between rebalances: the member owns its assignment and sends heartbeats."""

    LEAVING = "leaving"
    """The last callback and then LeaveGroup. The member sends heartbeats until LeaveGroup."""

    FAILED = "failed"
    """The state after an error that an immediate rejoin would not fix and that was reported to the
    caller. The member owns nothing and sends no heartbeats, but may keep its member id to rejoin or
    to leave. A later poll() or a new subscription ends it, after fencing only a subscription."""


_S = MemberState

TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOIN_PENDING}),
    _S.JOIN_PENDING: frozenset({_S.REVOKING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.REVOKING: frozenset({_S.REVOKING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.JOINING: frozenset(
        {
            *(_S.ASSIGNING, _S.SYNCING, _S.RECONCILING),
            *(_S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED),
        },
    ),
    _S.ASSIGNING: frozenset({_S.SYNCING, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.SYNCING: frozenset({_S.RECONCILING, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.RECONCILING: frozenset(
        {
            *(_S.ACKNOWLEDGING, _S.STABLE),
            *(_S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED),
        },
    ),
    _S.ACKNOWLEDGING: frozenset(
        {
            *(_S.RECONCILING, _S.STABLE),
            *(_S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED),
        },
    ),
    _S.STABLE: frozenset({_S.RECONCILING, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED}),
    _S.FAILED: frozenset({_S.JOIN_PENDING, _S.LEAVING, _S.UNSUBSCRIBED}),
}
"""Possible next states by state."""

EXCHANGE = frozenset({MemberState.JOINING, MemberState.ASSIGNING, MemberState.SYNCING})
"""States from JoinGroup to the response of SyncGroup."""


class StateCell:
    """The holder of a member's state. Only :meth:`move` changes it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._state = MemberState.UNSUBSCRIBED

    @property
    def state(self) -> MemberState:
        return self._state

    def move(self, to: MemberState, why: str) -> None:
        """Change the state. Raise RuntimeError for a transition that is not in the table."""
        if to not in TRANSITIONS[self._state]:
            raise RuntimeError(
                "internal error in kohort: the membership has no transition from "
                f"{self._state.name} to {to.name}, reason {why!r}"
            )
        logger.debug("[%s] %s -> %s: %s", self._label, self._state.name, to.name, why)
        self._state = to
