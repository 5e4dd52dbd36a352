"""The table of reactions: what each signal does in each state of a classic member.

``_signals`` turns the actions of ``_error_code_actions`` into signals, and applies this
table. Errors of JoinGroup, SyncGroup and the assignor are not signals. The rebalance itself handles
them.
"""

from __future__ import annotations

from enum import Enum

from kohort.coordinator_client.machine._state import MemberState


class Signal(Enum):
    """An event outside of the rebalance that may interrupt it."""

    SUBSCRIBED = "subscribe() with other topics"
    RESUBSCRIBED = "subscribe() with the same topics"
    REBALANCE = "a heartbeat returned REBALANCE_IN_PROGRESS"
    WANTED = "a rebalance is needed"
    """A request of the caller, changed topics on the leader, or REBALANCE_IN_PROGRESS for a commit.
    """
    HEARTBEAT_RETRIED = "a heartbeat must be repeated"
    LOST = "a heartbeat or a commit returned UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION"
    FAILED = "a heartbeat or a commit returned an error to report"
    FATAL = "a heartbeat was fenced, or it cannot be sent"
    SILENT = "no heartbeat had a response for a session timeout"
    POLL_OVERDUE = "no poll() for max_poll_interval_ms"
    POLLED = "poll() after a reported error"
    LEAVE = "unsubscribe() or close()"


class Reaction(Enum):
    """The reaction to a signal.

    No reaction interrupts a callback of the rebalance. After the callback, the rebalance checks the
    generation, and a member that leaves does so.
    """

    IGNORE = "-"
    """No reaction of the rebalance, because the signal does not matter or cannot occur. LEAVE still
    cancels a subscription that was made while the member leaves."""
    CONTINUE = "continue"
    """The step in progress continues. The next one uses the changed topics or membership."""
    LATER = "rebalance later"
    """Another rebalance follows this one."""
    REJOIN = "rejoin"
    """A rebalance begins with the wait for poll(). It replaces one in progress."""
    RESTART = "restart"
    """The rebalance restarts with JoinGroup. It waits for poll() only for a callback."""
    RETRY = "repeat"
    """The heartbeat is sent again."""
    LEAVE = "leave"
    """The member leaves."""
    FINISH = "finish, leave"
    """The member leaves. A member with partitions first takes part in the rebalance for at most a
    second, because the coordinator rejects its last commit until SyncGroup."""


_S, _R = MemberState, Reaction
_UNUSED = (_S.ACKNOWLEDGING,)
"""States that a classic member never has."""

_ROWS: dict[Signal, dict[Reaction, tuple[MemberState, ...]]] = {
    Signal.SUBSCRIBED: {
        _R.REJOIN: (_S.UNSUBSCRIBED, _S.STABLE, _S.FAILED),
        _R.CONTINUE: (
            *(_S.JOIN_PENDING, _S.REVOKING, _S.JOINING),
            *(_S.ASSIGNING, _S.SYNCING, _S.RECONCILING, _S.LEAVING),
        ),
        _R.IGNORE: _UNUSED,
    },
    Signal.RESUBSCRIBED: {
        _R.REJOIN: (_S.UNSUBSCRIBED, _S.FAILED),
        _R.CONTINUE: (
            *(_S.JOIN_PENDING, _S.REVOKING, _S.JOINING),
            *(_S.ASSIGNING, _S.SYNCING, _S.RECONCILING, _S.LEAVING),
        ),
        _R.IGNORE: (
            *_UNUSED,
            _S.STABLE,
        ),
    },
    Signal.REBALANCE: {
        _R.REJOIN: (_S.STABLE,),
        _R.LATER: (_S.RECONCILING,),
        _R.IGNORE: (
            *_UNUSED,
            *(_S.UNSUBSCRIBED, _S.JOIN_PENDING, _S.REVOKING, _S.JOINING),
            *(_S.ASSIGNING, _S.SYNCING, _S.LEAVING, _S.FAILED),
        ),
    },
    Signal.WANTED: {
        _R.REJOIN: (_S.STABLE,),
        _R.LATER: (_S.ASSIGNING, _S.SYNCING, _S.RECONCILING),
        _R.IGNORE: (
            *_UNUSED,
            *(_S.UNSUBSCRIBED, _S.JOIN_PENDING, _S.REVOKING, _S.JOINING),
            *(_S.LEAVING, _S.FAILED),
        ),
    },
    Signal.HEARTBEAT_RETRIED: {
        _R.RETRY: (
            *(_S.JOIN_PENDING, _S.REVOKING, _S.ASSIGNING),
            *(_S.SYNCING, _S.RECONCILING, _S.STABLE),
        ),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.JOINING, _S.LEAVING, _S.FAILED),
    },
    Signal.LOST: {
        _R.REJOIN: (_S.RECONCILING, _S.STABLE),
        _R.RESTART: (_S.ASSIGNING, _S.SYNCING),
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING),
        # The response to JoinGroup has the result, and after leaving it does not matter.
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.JOINING, _S.LEAVING, _S.FAILED),
    },
    Signal.FAILED: {
        _R.REJOIN: (_S.RECONCILING, _S.STABLE),
        _R.RESTART: (_S.ASSIGNING, _S.SYNCING),
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.JOINING, _S.LEAVING, _S.FAILED),
    },
    Signal.FATAL: {
        _R.REJOIN: (_S.RECONCILING, _S.STABLE),
        _R.RESTART: (_S.JOINING, _S.ASSIGNING, _S.SYNCING),
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING, _S.LEAVING),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.FAILED),
    },
    Signal.SILENT: {
        _R.RESTART: (_S.JOINING, _S.SYNCING),
        # The heartbeats drop the coordinator in every state. No other request waits for it.
        _R.IGNORE: (
            *_UNUSED,
            *(_S.UNSUBSCRIBED, _S.JOIN_PENDING, _S.REVOKING, _S.ASSIGNING),
            *(_S.RECONCILING, _S.STABLE, _S.LEAVING, _S.FAILED),
        ),
    },
    Signal.POLL_OVERDUE: {
        _R.REJOIN: (_S.JOINING, _S.ASSIGNING, _S.SYNCING, _S.RECONCILING, _S.STABLE),
        _R.CONTINUE: (_S.JOIN_PENDING, _S.REVOKING),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.LEAVING, _S.FAILED),
    },
    Signal.POLLED: {
        _R.REJOIN: (_S.FAILED,),
        _R.IGNORE: (
            *_UNUSED,
            *(_S.UNSUBSCRIBED, _S.JOIN_PENDING, _S.REVOKING, _S.JOINING, _S.ASSIGNING),
            *(_S.SYNCING, _S.RECONCILING, _S.STABLE, _S.LEAVING),
        ),
    },
    Signal.LEAVE: {
        _R.LEAVE: (_S.JOIN_PENDING, _S.REVOKING, _S.RECONCILING, _S.STABLE, _S.FAILED),
        _R.FINISH: (_S.JOINING, _S.ASSIGNING, _S.SYNCING),
        _R.IGNORE: (*_UNUSED, _S.UNSUBSCRIBED, _S.LEAVING),
    },
}

REACTIONS: dict[tuple[MemberState, Signal], Reaction] = {
    (state, signal): reaction
    for signal, row in _ROWS.items()
    for reaction, states in row.items()
    for state in states
}
"""Reactions by state and signal. The table is complete."""
