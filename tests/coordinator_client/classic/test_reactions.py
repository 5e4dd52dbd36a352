"""The reaction of the membership to each signal in each situation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.coordinator_client import TRANSITIONS, MemberState
from kohort.coordinator_client.assignors import Subscription
from kohort.coordinator_client.classic import _reactions as table
from kohort.coordinator_client.classic._reactions import Reaction, Signal
from kohort.coordinator_client.machine._commands import (
    AwaitPoll,
    CallAssigned,
    CallRevoked,
    Heartbeat,
    MakeAssignment,
    SyncGroup,
)
from kohort.coordinator_client.machine._events import CommitRejected, RejoinRequested, Tick
from tests.coordinator_client.scripts import Script, parts

# --- situations -----------------------------------------------------------------------------


def _stable() -> Script:
    script = Script()
    script.to_stable()
    return script


def _stable_cooperative() -> Script:
    script = Script(cooperative=True)
    script.to_stable()
    return script


def _stable_without_partitions() -> Script:
    script = Script()
    script.to_syncing()
    script.sync_answer()
    if script.has(AwaitPoll):
        script.poll()
    script.called_back(CallAssigned)
    assert script.at(MemberState.STABLE)
    return script


def _first_join_pending() -> Script:
    script = Script()
    script.subscribe()
    return script


def _join_pending() -> Script:
    script = _stable()
    script.beat(27)
    return script


def _revoking() -> Script:
    script = _join_pending()
    script.poll()
    return script


def _losing() -> Script:
    script = _stable()
    script.beat(25)
    script.poll()
    return script


def _joining_first() -> Script:
    script = Script()
    script.to_joining()
    return script


def _joining_eager() -> Script:
    script = _revoking()
    script.called_back(CallRevoked)
    return script


def _joining_cooperative() -> Script:
    script = Script(cooperative=True)
    script.to_stable()
    script.beat(27)
    script.poll()
    return script


def _assigning() -> Script:
    script = _joining_first()
    script.join_answer(leader="me", members={"me": Subscription(("t",))})
    return script


def _syncing() -> Script:
    script = Script()
    script.to_syncing()
    return script


def _syncing_cooperative() -> Script:
    script = _joining_cooperative()
    script.join_answer(generation=2)
    return script


def _reconciling() -> Script:
    script = Script()
    script.to_reconciling()
    return script


def _adding() -> Script:
    script = _reconciling()
    script.poll()
    return script


def _calling_back_last() -> Script:
    script = _stable()
    script.leave()
    return script


def _sending_leave() -> Script:
    script = _calling_back_last()
    script.called_back(CallRevoked)
    return script


def _failed() -> Script:
    script = _joining_first()
    script.join_answer(30)
    return script


def _fenced() -> Script:
    script = _joining_first()
    script.join_answer(82)
    return script


SITUATIONS: dict[str, Callable[[], Script]] = {
    "unsubscribed": Script,
    "first join pending": _first_join_pending,
    "join pending": _join_pending,
    "revoking": _revoking,
    "losing": _losing,
    "joining first": _joining_first,
    "joining eager": _joining_eager,
    "joining cooperative": _joining_cooperative,
    "assigning": _assigning,
    "syncing": _syncing,
    "syncing cooperative": _syncing_cooperative,
    "reconciling": _reconciling,
    "adding": _adding,
    "stable": _stable,
    "stable cooperative": _stable_cooperative,
    "stable without partitions": _stable_without_partitions,
    "calling back last": _calling_back_last,
    "sending leave": _sending_leave,
    "failed": _failed,
    "fenced": _fenced,
}

# --- signals --------------------------------------------------------------------------------


def _beat(script: Script, code: int) -> bool:
    """Send a heartbeat and answer it. Return False if the member sends none."""
    if not script.has(Heartbeat):
        deadline = script.machine.heartbeats.deadline()
        if deadline is None:
            return False
        script.now = max(script.now, deadline)
        script.feed(Tick(script.now))
    script.heartbeat_answer(code)
    return True


def _reject_commit(script: Script, code: int) -> bool:
    script.feed(CommitRejected(code, script.machine.generation, script.machine.member_id))
    return True


def _pass_session(script: Script) -> bool:
    """Let a session timeout pass without a response. Return False without a session."""
    end = script.machine.heartbeats.session_end
    if end is None:
        return False
    script.now = max(script.now, end)
    script.feed(Tick(script.now))
    return True


def _pass_poll_interval(script: Script) -> bool:
    script.now += 400
    script.feed(Tick(script.last_poll))
    return True


def _poll_again(script: Script) -> bool:
    script.now += 2  # after the pause that follows a reported error
    script.feed(Tick(script.now))
    return True


def _request_rejoin(script: Script) -> bool:
    script.feed(RejoinRequested("requested"))
    return True


def _leave(script: Script) -> bool:
    script.leave()
    return True


def _subscribe(script: Script, *topics: str) -> bool:
    script.subscribe(*topics)
    return True


SIGNALS: dict[str, Callable[[Script], bool]] = {
    "rejoin": _request_rejoin,
    "heartbeat 14": lambda script: _beat(script, 14),
    "heartbeat 16": lambda script: _beat(script, 16),
    "heartbeat 22": lambda script: _beat(script, 22),
    "heartbeat 25": lambda script: _beat(script, 25),
    "heartbeat 27": lambda script: _beat(script, 27),
    "heartbeat 30": lambda script: _beat(script, 30),
    "heartbeat 82": lambda script: _beat(script, 82),
    "commit 22": lambda script: _reject_commit(script, 22),
    "commit 25": lambda script: _reject_commit(script, 25),
    "commit 27": lambda script: _reject_commit(script, 27),
    "commit 82": lambda script: _reject_commit(script, 82),
    "silence": _pass_session,
    "no poll": _pass_poll_interval,
    "poll": _poll_again,
    "leave": _leave,
    "same topics": lambda script: _subscribe(script, "t"),
    "other topics": lambda script: _subscribe(script, "t", "u"),
}

# --- reactions ------------------------------------------------------------------------------

IMPOSSIBLE = "impossible"
"""The signal cannot occur, because the member sends no heartbeats."""
NO_MEMBER = (*(f"heartbeat {code}" for code in (14, 16, 22, 25, 27, 30, 82)), "silence")
LOST = ("heartbeat 22", "heartbeat 25", "commit 22", "commit 25")
FAILED = ("heartbeat 30", "heartbeat 82", "commit 82")


def _finishes_stable(script: Script) -> bool:
    """Complete the rebalance in progress. Return True if no other one follows it."""
    if script.has(MakeAssignment):
        script.assign({"me": parts(0, 1)})
    if script.has(SyncGroup):
        script.sync_answer(parts(0, 1))
    if script.has(AwaitPoll):
        script.poll()
    script.called_back(CallAssigned)
    return script.at(MemberState.STABLE)


def _reaction(situation: str, signal: str) -> str:
    """Return the changes that a signal makes visible."""
    script = SITUATIONS[situation]()
    machine = script.machine
    state, generation, known = machine.state, machine.generation, list(script.commands)
    if not SIGNALS[signal](script):
        return IMPOSSIBLE
    found = [] if machine.state is state else [machine.state.name]
    if generation >= 0 > machine.generation:
        found.append("lost")
    if machine.leave is not None and MemberState.LEAVING not in (state, machine.state):
        found.append("leaves later")
    new = [type(command).__name__ for command in script.commands if command not in known]
    found += sorted(name for name in new if name != "Heartbeat")
    rebalances = (MemberState.ASSIGNING, MemberState.SYNCING, MemberState.RECONCILING)
    if not found and state in rebalances and not script.has(CallRevoked):
        if "topics" not in signal and not _finishes_stable(script):
            found.append("rebalances again")
    return ", ".join(found)


REACTIONS: dict[str, dict[tuple[str, ...], str]] = {
    "unsubscribed": {
        NO_MEMBER: IMPOSSIBLE,
        ("same topics", "other topics"): "JOIN_PENDING, AwaitPoll",
    },
    "first join pending": {
        NO_MEMBER: IMPOSSIBLE,
        ("leave",): "UNSUBSCRIBED",
    },
    "join pending": {
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "lost, StopDelivery",
        ("no poll",): "lost, LeaveGroup, StopDelivery",
        ("leave",): "LEAVING, CallRevoked",
    },
    "revoking": {
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "lost, StopDelivery",
        ("no poll",): "lost, LeaveGroup, StopDelivery",
        ("leave",): "leaves later",
    },
    "losing": {
        NO_MEMBER: IMPOSSIBLE,
        ("leave",): "leaves later",
    },
    "joining first": {
        NO_MEMBER: IMPOSSIBLE,
        ("no poll",): "JOIN_PENDING, AwaitPoll",
        ("leave",): "LEAVING",
    },
    "joining eager": {
        ("heartbeat 82",): "FAILED, lost, ReportFailure",
        ("silence",): "DropCoordinator, JoinGroup",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup",
        ("leave",): "LEAVING, LeaveGroup",
    },
    "joining cooperative": {
        ("heartbeat 82",): "JOIN_PENDING, lost, AwaitPoll, StopDelivery",
        ("silence",): "DropCoordinator, JoinGroup",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup, StopDelivery",
        ("leave",): "leaves later, CallRevoked",
    },
    "assigning": {
        ("rejoin", "commit 27"): "rebalances again",
        ("heartbeat 16", "silence"): "DropCoordinator",
        LOST: "JOINING, lost, JoinGroup, WatchTopics",
        FAILED: "FAILED, lost, ReportFailure, WatchTopics",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup, WatchTopics",
        ("leave",): "LEAVING, LeaveGroup",
    },
    "syncing": {
        ("rejoin", "commit 27"): "rebalances again",
        ("heartbeat 16",): "DropCoordinator",
        LOST: "JOINING, lost, JoinGroup",
        FAILED: "FAILED, lost, ReportFailure",
        ("silence",): "JOINING, DropCoordinator, JoinGroup",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup",
        ("leave",): "LEAVING, LeaveGroup",
    },
    "syncing cooperative": {
        ("rejoin", "commit 27"): "rebalances again",
        ("heartbeat 16",): "DropCoordinator",
        (*LOST, *FAILED): "JOIN_PENDING, lost, AwaitPoll, StopDelivery",
        ("silence",): "JOINING, DropCoordinator, JoinGroup",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup, StopDelivery",
        ("leave",): "leaves later",
    },
    "reconciling": {
        ("rejoin", "heartbeat 27", "commit 27"): "rebalances again",
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "JOIN_PENDING, lost",
        ("no poll",): "JOIN_PENDING, lost, LeaveGroup",
        ("leave",): "LEAVING, LeaveGroup",
    },
    "adding": {
        ("rejoin", "heartbeat 27", "commit 27"): "rebalances again",
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "lost, StopDelivery",
        ("no poll",): "lost, LeaveGroup, StopDelivery",
        ("leave",): "leaves later",
    },
    "stable": {
        ("rejoin", "heartbeat 27", "commit 27", "other topics"): "JOIN_PENDING, AwaitPoll",
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "JOIN_PENDING, lost, AwaitPoll, StopDelivery",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup, StopDelivery",
        ("leave",): "LEAVING, CallRevoked",
    },
    "stable cooperative": {
        ("rejoin", "heartbeat 27", "commit 27", "other topics"): "JOIN_PENDING, AwaitPoll",
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "JOIN_PENDING, lost, AwaitPoll, StopDelivery",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup, StopDelivery",
        ("leave",): "LEAVING, CallRevoked",
    },
    "stable without partitions": {
        ("rejoin", "heartbeat 27", "commit 27", "other topics"): "JOIN_PENDING, AwaitPoll",
        ("heartbeat 16", "silence"): "DropCoordinator",
        (*LOST, *FAILED): "JOIN_PENDING, lost, AwaitPoll",
        ("no poll",): "JOIN_PENDING, lost, AwaitPoll, LeaveGroup",
        ("leave",): "LEAVING, LeaveGroup",
    },
    "calling back last": {
        ("heartbeat 82",): "lost, StopDelivery",
        ("silence", "no poll"): "DropCoordinator",
    },
    "sending leave": {
        NO_MEMBER: IMPOSSIBLE,
        ("no poll",): "UNSUBSCRIBED, lost",
    },
    "failed": {
        NO_MEMBER: IMPOSSIBLE,
        ("poll",): "JOIN_PENDING, AwaitPoll",
        ("leave",): "UNSUBSCRIBED",
        ("same topics", "other topics"): "JOIN_PENDING, AwaitPoll",
    },
    "fenced": {
        NO_MEMBER: IMPOSSIBLE,
        ("leave",): "UNSUBSCRIBED",
        ("same topics", "other topics"): "JOIN_PENDING, AwaitPoll",
    },
}
"""Reactions by situation. The signals that are not listed change nothing that is visible."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_signal_in_situation_has_the_reaction_of_the_table(situation: str) -> None:
    expected = dict.fromkeys(SIGNALS, "")
    for signals, reaction in REACTIONS[situation].items():
        expected.update(dict.fromkeys(signals, reaction))
    assert {signal: _reaction(situation, signal) for signal in SIGNALS} == expected


# --- the table of the membership ------------------------------------------------------------

SIGNAL_OF = {
    "rejoin": Signal.WANTED,
    "heartbeat 14": Signal.HEARTBEAT_RETRIED,
    "heartbeat 16": Signal.HEARTBEAT_RETRIED,
    "heartbeat 22": Signal.LOST,
    "heartbeat 25": Signal.LOST,
    "heartbeat 27": Signal.REBALANCE,
    "heartbeat 30": Signal.FAILED,
    "heartbeat 82": Signal.FATAL,
    "commit 22": Signal.LOST,
    "commit 25": Signal.LOST,
    "commit 27": Signal.WANTED,
    "commit 82": Signal.FAILED,
    "silence": Signal.SILENT,
    "no poll": Signal.POLL_OVERDUE,
    "poll": Signal.POLLED,
    "leave": Signal.LEAVE,
    "same topics": Signal.RESUBSCRIBED,
    "other topics": Signal.SUBSCRIBED,
}
VISIBLE: dict[Reaction, tuple[str, ...]] = {
    Reaction.IGNORE: ("", "DropCoordinator"),
    Reaction.CONTINUE: ("", "lost, StopDelivery", "lost, LeaveGroup, StopDelivery"),
    Reaction.LATER: ("rebalances again",),
    Reaction.REJOIN: ("JOIN_PENDING",),
    Reaction.RESTART: ("JOINING", "JOIN_PENDING", "FAILED", "DropCoordinator, JoinGroup"),
    Reaction.RETRY: ("", "DropCoordinator"),
    Reaction.LEAVE: ("LEAVING", "UNSUBSCRIBED", "leaves later"),
    Reaction.FINISH: ("LEAVING", "leaves later"),
}
"""Prefixes of the visible changes by reaction."""


def test_table_has_a_reaction_for_each_state_and_signal() -> None:
    assert set(table.REACTIONS) == {(state, signal) for state in MemberState for signal in Signal}
    cells = sum(len(states) for row in table._ROWS.values() for states in row.values())
    assert cells == len(MemberState) * len(Signal), "a state is listed twice for a signal"


def test_each_rejoin_of_the_table_is_a_possible_transition() -> None:
    for (state, _), reaction in table.REACTIONS.items():
        if reaction is Reaction.REJOIN:
            assert MemberState.JOIN_PENDING in TRANSITIONS[state]
        if reaction is Reaction.RESTART and state is not MemberState.JOINING:
            assert MemberState.JOINING in TRANSITIONS[state]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_visible_changes_are_those_of_the_table(situation: str) -> None:
    state = SITUATIONS[situation]().machine.state
    for signal, kind in SIGNAL_OF.items():
        visible, reaction = _reaction(situation, signal), table.REACTIONS[state, kind]
        if visible == IMPOSSIBLE:
            continue
        begins = VISIBLE[reaction]
        if situation == "adding" and reaction is Reaction.REJOIN:
            begins = VISIBLE[Reaction.CONTINUE]  # the callback ends first
        if (situation, signal) == ("fenced", "poll"):
            begins = ("",)  # only a subscription ends it
        if (situation, signal) == ("sending leave", "no poll"):
            begins = ("UNSUBSCRIBED",)  # the time for LeaveGroup passes first
        assert any(visible == each or (each and visible.startswith(each)) for each in begins), (
            signal,
            visible,
            reaction,
        )
