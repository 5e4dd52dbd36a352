"""Match of whole names by a deterministic automaton, which is built while names are read.

A step from one state by one character visits each state of the program at most once. Its result is
kept, so that names with equal parts share the steps. The time of a new name is linear in the size
of the expression and in the length of the name.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from enum import Enum, auto

from kohort.broker.groups.consumer._re2j._characters import WORD
from kohort.broker.groups.consumer._re2j._nodes import MAX_NAME, TextAssertion
from kohort.broker.groups.consumer._re2j._program import Program, State

_NEWLINE = 10
_MAX_KEPT = 200_000
"""Most states of the program in the kept steps, which bounds the memory of a pattern."""
_MAX_FORGOTTEN = 1_000
"""Most results that are kept for names of topics that do not exist any longer."""


class _Before(Enum):
    """Character before a position, as far as assertions depend on it."""

    NOTHING = auto()
    NEWLINE = auto()
    WORD = auto()
    OTHER = auto()


class _Step:
    """Position of all paths at once: the program's states that were entered.

    ``following`` has the known next steps by character, None where no path goes on.
    """

    __slots__ = ("before", "entered", "following", "is_match")

    def __init__(self, entered: frozenset[State], before: _Before) -> None:
        self.entered = entered
        self.before = before
        self.following: dict[int, _Step | None] = {}
        self.is_match: bool | None = None


class Work:
    """Work that may be done before other work goes on; a step goes a bit beyond it.

    The default takes some hundredths of a second.
    """

    __slots__ = ("left",)

    def __init__(self, left: int = 50_000) -> None:
        self.left = left


class Matcher:
    """Results of a program for names. Results and steps are kept within bounds.

    The work is counted in visited states and transitions of the program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._first = _Step(frozenset((program.first,)), _Before.NOTHING)
        self._steps: dict[tuple[frozenset[State], _Before], _Step] = {}
        self._kept = 0
        self._visited = 0
        self._results: dict[str, bool] = {}
        self._interrupted: tuple[str, int, _Step] | None = None

    def matches(self, name: str) -> bool:
        """True if the expression matches the whole name, which must be possible for a topic."""
        known = self._results.get(name)
        if known is None:
            known = self._run(name, math.inf)
            assert known is not None
        return known

    def prepare(self, names: Collection[str], work: Work) -> bool:
        """Compute the results of names, as far as possible by this work.

        Return True if all results are known. Otherwise the next call continues.
        """
        before = self._visited
        is_complete = self._prepare(names, before + work.left)
        work.left -= self._visited - before
        if is_complete:
            # The results are enough, and a group may have many patterns.
            self._forget_steps()
        return is_complete

    def _prepare(self, names: Collection[str], limit: int) -> bool:
        if len(self._results) > _MAX_FORGOTTEN + len(names):
            self._results = {name: self._results[name] for name in names if name in self._results}
        for name in names:
            if name in self._results:
                continue
            result = self._run(name, limit)
            if result is None:
                return False
            self._results[name] = result
        return True

    def _run(self, name: str, limit: float) -> bool | None:
        """Return the result of a name, None if the limit was reached before."""
        if not name.isascii() or len(name) > MAX_NAME:
            return False
        codes, start, step = name.encode(), 0, self._first
        if self._interrupted is not None and self._interrupted[0] == name:
            _, start, step = self._interrupted
        self._interrupted = None
        for at in range(start, len(codes)):
            try:
                following = step.following[codes[at]]
            except KeyError:
                if self._visited > limit:
                    self._interrupted = name, at, step
                    return None
                following = step.following[codes[at]] = self._next(step, codes[at])
            if following is None:
                return False
            step = following
        if step.is_match is None:
            step.is_match = self._program.last in self._reachable(step, None)
        return step.is_match

    def _next(self, step: _Step, code: int) -> _Step | None:
        """Return the step after a character."""
        reached = self._reachable(step, code)
        entered = frozenset(state.following[0] for state in reached if state.mask >> code & 1)
        if not entered:
            return None
        if self._kept > _MAX_KEPT:
            # The present step stays in use. The others are computed again when they are needed.
            self._forget_steps()
        before = _before(code)
        found = self._steps.get((entered, before))
        if found is None:
            found = self._steps[entered, before] = _Step(entered, before)
            self._kept += len(entered)
        return found

    def _forget_steps(self) -> None:
        self._interrupted = None
        self._steps.clear()
        self._first.following.clear()
        self._kept = 0

    def _reachable(self, step: _Step, code: int | None) -> set[State]:
        """Return the states that a step leads to without reading, and its own.

        ``code`` is the next character, None at the end of the name.
        """
        holding = _holding(step.before, code)
        reached = set(step.entered)
        waiting = list(step.entered)
        while waiting:
            state = waiting.pop()
            if state.mask or (state.assertion is not None and state.assertion not in holding):
                continue
            self._visited += len(state.following)
            for each in state.following:
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)
        self._visited += len(reached)
        return reached


def _before(code: int) -> _Before:
    if code == _NEWLINE:
        return _Before.NEWLINE
    return _Before.WORD if WORD >> code & 1 else _Before.OTHER


def _holding(before: _Before, code: int | None) -> AbstractSet[TextAssertion]:
    """Return the assertions that hold between two characters."""
    holding = set()
    if before is _Before.NOTHING:
        holding.add(TextAssertion.BEGIN_TEXT)
    if before in (_Before.NOTHING, _Before.NEWLINE):
        holding.add(TextAssertion.BEGIN_LINE)
    if code is None:
        holding.add(TextAssertion.END_TEXT)
    if code is None or code == _NEWLINE:
        holding.add(TextAssertion.END_LINE)
    is_boundary = (before is _Before.WORD) != (code is not None and bool(WORD >> code & 1))
    holding.add(TextAssertion.WORD_BOUNDARY if is_boundary else TextAssertion.NO_WORD_BOUNDARY)
    return holding
