"""Match of a whole name by all paths of the automaton at once.

A match visits a state at most once for each character. The time is linear in the size of the
expression and in the length of the name.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from kohort.broker.groups.consumer._re2j._characters import WORD
from kohort.broker.groups.consumer._re2j._nodes import MAX_NAME, TextAssertion
from kohort.broker.groups.consumer._re2j._program import Program, State


def matches(program: Program, name: str) -> bool:
    """True if the expression matches the whole name, which must be possible for a topic."""
    if not name.isascii() or len(name) > MAX_NAME:
        return False
    codes = name.encode()
    entered = {program.first}
    for at, code in enumerate(codes):
        reached = _reachable(entered, _assertions_at(codes, at))
        entered = {state.following[0] for state in reached if state.mask >> code & 1}
        if not entered:
            return False
    return program.last in _reachable(entered, _assertions_at(codes, len(codes)))


def _reachable(entered: set[State], holding: AbstractSet[TextAssertion]) -> set[State]:
    """Return the states that some states lead to without reading, and those states."""
    reached = set(entered)
    waiting = list(entered)
    while waiting:
        state = waiting.pop()
        if state.mask or (state.assertion is not None and state.assertion not in holding):
            continue
        for each in state.following:
            if each not in reached:
                reached.add(each)
                waiting.append(each)
    return reached


def _assertions_at(name: bytes, at: int) -> AbstractSet[TextAssertion]:
    """Return the assertions that hold at a position."""
    holding = set()
    if at == 0:
        holding.add(TextAssertion.BEGIN_TEXT)
    if at == 0 or name[at - 1] == 10:
        holding.add(TextAssertion.BEGIN_LINE)
    if at == len(name):
        holding.add(TextAssertion.END_TEXT)
    if at == len(name) or name[at] == 10:
        holding.add(TextAssertion.END_LINE)
    before = at > 0 and WORD >> name[at - 1] & 1
    after = at < len(name) and WORD >> name[at] & 1
    is_boundary = bool(before) != bool(after)
    holding.add(TextAssertion.WORD_BOUNDARY if is_boundary else TextAssertion.NO_WORD_BOUNDARY)
    return holding
