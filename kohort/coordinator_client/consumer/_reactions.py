"""The table of reactions: what each signal does in each state of a consumer group member.

``_signals`` turns the responses to heartbeats into signals, and applies this table.
"""

from __future__ import annotations

from enum import Enum

from kohort.coordinator_client.machine._state import MemberState


class ConsumerSignal(Enum):
    """An event outside of the reconciliation."""

    SUBSCRIBED = "subscribe() with other topics"
    RESUBSCRIBED = "subscribe() with the same topics"
    ASSIGNED = "a heartbeat returned an assignment"
    EPOCH_REJECTED = "the coordinator rejected a commit or a read of offsets"
    RECREATED = "an owned topic was deleted and created again"
    LOST = "a heartbeat ended the membership"
    """UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, or GROUP_ID_NOT_FOUND for a member."""
    FAILED = "a heartbeat returned an error to report, or cannot be sent"
    POLL_OVERDUE = "no poll() for max_poll_interval_ms"
    POLLED = "poll() after a reported error"
    LEAVE = "unsubscribe() or close()"


class ConsumerReaction(Enum):
    """The reaction to a signal. No reaction interrupts a callback of the reconciliation."""

    IGNORE = "-"
    """No reaction, because the signal does not matter or cannot occur."""
    CONTINUE = "continue"
    """The step in progress continues. It uses the changed topics or assignment."""
    HEARTBEAT = "heartbeat"
    """A heartbeat is sent at once."""
    RECONCILE = "reconcile"
    """The member reconciles its partitions with the assignment."""
    JOIN = "join"
    """The member joins. It waits for poll() before its first join, and for a callback."""
    LEAVE = "leave"
    """The member leaves."""


_S, _R = MemberState, ConsumerReaction
_UNUSED = (_S.ASSIGNING, _S.SYNCING)
"""States that a member of a consumer group never has."""
_OUTSIDE = (_S.UNSUBSCRIBED, _S.JOIN_PENDING, _S.REVOKING)
"""States without a heartbeat in flight. FAILED has none, too."""
_INSIDE = (_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE)
"""States of a member that the coordinator has accepted."""

_ROWS: dict[ConsumerSignal, dict[ConsumerReaction, tuple[MemberState, ...]]] = {
    ConsumerSignal.SUBSCRIBED: {
        _R.JOIN: (_S.UNSUBSCRIBED, _S.FAILED),
        _R.HEARTBEAT: _INSIDE,
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING, _S.JOINING, _S.LEAVING),
        _R.IGNORE: _UNUSED,
    },
    ConsumerSignal.RESUBSCRIBED: {
        _R.JOIN: (_S.UNSUBSCRIBED, _S.FAILED),
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING, _S.JOINING, _S.LEAVING),
        _R.IGNORE: (*_UNUSED, *_INSIDE),
    },
    ConsumerSignal.ASSIGNED: {
        _R.RECONCILE: (_S.JOINING, _S.STABLE),
        _R.CONTINUE: (_S.RECONCILING, _S.ACKNOWLEDGING),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.LEAVING, _S.FAILED),
    },
    ConsumerSignal.EPOCH_REJECTED: {
        _R.HEARTBEAT: (*_INSIDE, _S.LEAVING),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.JOINING, _S.FAILED),
    },
    ConsumerSignal.RECREATED: {
        _R.HEARTBEAT: _INSIDE,
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.JOINING, _S.LEAVING, _S.FAILED),
    },
    ConsumerSignal.LOST: {
        _R.JOIN: (_S.JOINING, *_INSIDE),
        _R.CONTINUE: (_S.LEAVING,),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.FAILED),
    },
    ConsumerSignal.FAILED: {
        _R.JOIN: (_S.JOINING, *_INSIDE),
        _R.CONTINUE: (_S.LEAVING,),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.FAILED),
    },
    ConsumerSignal.POLL_OVERDUE: {
        _R.JOIN: (_S.JOINING, *_INSIDE),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.LEAVING, _S.FAILED),
    },
    ConsumerSignal.POLLED: {
        _R.JOIN: (_S.FAILED,),
        _R.IGNORE: (*_UNUSED, *_OUTSIDE, _S.JOINING, *_INSIDE, _S.LEAVING),
    },
    ConsumerSignal.LEAVE: {
        _R.LEAVE: (_S.JOIN_PENDING, _S.REVOKING, _S.JOINING, *_INSIDE, _S.FAILED),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.LEAVING),
    },
}

CONSUMER_REACTIONS: dict[tuple[MemberState, ConsumerSignal], ConsumerReaction] = {
    (state, signal): reaction
    for signal, row in _ROWS.items()
    for reaction, states in row.items()
    for state in states
}
"""Reactions by state and signal. The table is complete."""
