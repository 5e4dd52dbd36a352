"""The states of a group member, and which of them follow one another.

The classic protocol and KIP-848 share the states; each machine uses those it needs.
"""

from __future__ import annotations

import logging
from enum import Enum

logger = logging.getLogger(__name__)


class MemberState(Enum):
    """Where a member stands in its group."""

    UNSUBSCRIBED = "unsubscribed"
    """Nothing is subscribed to, so there is nothing to be a member for. Also the state after
    leaving. The coordinator knows nothing of this consumer, or will forget it by itself."""

    JOIN_PENDING = "join pending"
    """A JoinGroup is due and waits until the caller is inside poll(), because what comes before it
    may be a callback. If the member still has a generation (the coordinator asked for a rebalance,
    the subscription changed), it owns its partitions, reads and commits on, and heartbeats go on.
    If it has none (first join, or membership lost), nothing is sent meanwhile."""

    REVOKING = "revoking"
    """The callback that comes before JoinGroup runs on the caller's thread: revoked for what an
    eager member owns or for topics no longer wanted, lost if the generation is gone. The partitions
    stay owned until it has ended, so that it can commit."""

    JOINING = "joining"
    """JoinGroup is sent and parked at the coordinator until all members are in, or waits to be sent
    again. It goes on when the caller leaves poll(). A cooperative member keeps its partitions."""

    ASSIGNING = "assigning"
    """This member leads its generation, and the assignor deals the partitions. The others wait."""

    SYNCING = "syncing"
    """SyncGroup is sent and waits for the leader's assignment."""

    RECONCILING = "reconciling"
    """The assignment is here; callbacks carry it into the consumer, inside poll(): first what is
    taken away (cooperative), then what is new."""

    STABLE = "stable"
    """The member owns its assignment and heartbeats."""

    LEAVING = "leaving"
    """The last callback runs, then LeaveGroup is sent. Heartbeats go on until it is."""

    FAILED = "failed"
    """An error that rejoining at once would not mend was handed to the caller. Nothing is owned and
    no heartbeat sent, but a member id may be kept to come back under, or to leave. Left by a later
    poll() or a new subscription; after fencing by a new subscription only."""


_S = MemberState

TRANSITIONS: dict[MemberState, frozenset[MemberState]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOIN_PENDING}),
    _S.JOIN_PENDING: frozenset({_S.REVOKING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.REVOKING: frozenset({_S.REVOKING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.JOINING: frozenset(
        {_S.ASSIGNING, _S.SYNCING, _S.JOIN_PENDING, _S.LEAVING, _S.FAILED},
    ),
    _S.ASSIGNING: frozenset({_S.SYNCING, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.SYNCING: frozenset({_S.RECONCILING, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.JOIN_PENDING, _S.JOINING, _S.LEAVING, _S.FAILED}),
    _S.STABLE: frozenset({_S.JOIN_PENDING, _S.LEAVING, _S.FAILED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED}),
    _S.FAILED: frozenset({_S.JOIN_PENDING, _S.LEAVING, _S.UNSUBSCRIBED}),
}
"""State -> the states that may follow."""


class StateCell:
    """Holds a member's state. :meth:`move` is the only way to change it."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._state = MemberState.UNSUBSCRIBED

    @property
    def state(self) -> MemberState:
        return self._state

    def move(self, to: MemberState, why: str) -> None:
        """Go to another state; a transition that is not in the table is a bug (RuntimeError)."""
        if to not in TRANSITIONS[self._state]:
            raise RuntimeError(f"no transition from {self._state.name} to {to.name} ({why})")
        logger.debug("[%s] %s -> %s: %s", self._label, self._state.name, to.name, why)
        self._state = to
