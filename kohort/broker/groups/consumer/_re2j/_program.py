"""Automaton of a regular expression, by Thompson's construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.broker.groups.consumer._re2j._nodes import (
    Alternation,
    Characters,
    Concatenation,
    Node,
    Repetition,
    TextAssertion,
)


@dataclass(slots=True, eq=False, repr=False)
class State:
    """State of the automaton. It reads one character, or it goes on without reading."""

    mask: int = 0
    """Characters that the state reads, 0 if it reads none."""
    assertion: TextAssertion | None = None
    """Condition for going on without reading."""
    following: list[State] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Program:
    """Automaton with its first state and the state that accepts."""

    first: State
    last: State


def compile_node(root: Node) -> Program:
    """Return the automaton of an expression. It has at most ``root.measure.size`` transitions."""
    last = State()
    return Program(_before(root, last), last)


def _before(node: Node, after: State) -> State:
    """Return the state that matches the node and goes on with the state ``after``."""
    if isinstance(node, Characters):
        # With a mask of 0 the state would go on without reading.
        return State(mask=node.mask, following=[after] if node.mask else [])
    if isinstance(node, TextAssertion):
        return State(assertion=node, following=[after])
    if isinstance(node, Concatenation):
        for part in reversed(node.parts):
            after = _before(part, after)
        return after
    if isinstance(node, Alternation):
        return State(following=[_before(part, after) for part in node.parts])
    return _before_repetition(node, after)


def _before_repetition(node: Repetition, after: State) -> State:
    required = node.least
    if node.most is None:
        loop = State(following=[after])
        again = _before(node.part, loop)
        loop.following.append(again)
        # The part in the loop is the last of the required ones, so "+" needs no second copy.
        entry = again if required else loop
        required = max(required - 1, 0)
    else:
        entry = after
        for _ in range(node.most - node.least):
            entry = State(following=[_before(node.part, entry), after])
    for _ in range(required):
        entry = _before(node.part, entry)
    return entry
