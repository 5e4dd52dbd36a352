"""The state of a consumer's life: its table of transitions, and how both APIs move through it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from kohort.consumer.driver._life import MOVES, ConsumerLife, ConsumerState
from kohort.errors import ConsumerClosedError, ForkedConsumerError
from kohort.testing import Cluster
from tests.support.awaited import EACH_API

NEW, STARTING, ABORTING = ConsumerState.NEW, ConsumerState.STARTING, ConsumerState.ABORTING
RUNNING, RESETTING = ConsumerState.RUNNING, ConsumerState.RESETTING
CLOSING, CLOSED = ConsumerState.CLOSING, ConsumerState.CLOSED

EXPECTED: dict[ConsumerState, set[ConsumerState]] = {
    NEW: {NEW, STARTING, CLOSING, CLOSED},
    STARTING: {STARTING, NEW, ABORTING, RUNNING, CLOSING, CLOSED},
    ABORTING: {ABORTING, NEW, CLOSED},
    RUNNING: {RUNNING, RESETTING, CLOSING, CLOSED},
    RESETTING: {RESETTING, NEW, CLOSED},
    CLOSING: {CLOSING, CLOSED},
    CLOSED: {CLOSED},
}
"""State -> the states that it may move to."""


@pytest.mark.parametrize("state", ConsumerState)
def test_state_moves_only_along_the_table(state: ConsumerState) -> None:
    for to in ConsumerState:
        life = ConsumerLife()
        life.state = state
        if to in EXPECTED[state]:
            life.move(to)
            assert life.state is to
        else:
            with pytest.raises(RuntimeError, match="internal error"):
                life.move(to)
            assert life.state is state


def test_every_state_can_be_reached_and_left() -> None:
    assert MOVES.keys() == set(ConsumerState)
    reached = {to for moves in MOVES.values() for to in moves}
    assert reached | {CLOSED} == set(ConsumerState)
    left = {state for state, moves in MOVES.items() if moves}
    assert left | {CLOSING, CLOSED} == set(ConsumerState), "CLOSED follows CLOSING"


@pytest.mark.parametrize("state", ConsumerState)
def test_move_from_one_state_does_nothing_in_others(state: ConsumerState) -> None:
    life = ConsumerLife()
    life.state = state
    life.move(RUNNING, only_from=STARTING)
    assert life.state is (RUNNING if state is STARTING else state)


def test_use_is_refused_after_close_and_after_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    life = ConsumerLife()
    life.check_usable()
    life.pid = os.getpid()
    life.check_usable()
    parent = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(ForkedConsumerError):
            life.check_usable()
    life.move(ConsumerState.CLOSED)
    with pytest.raises(ConsumerClosedError):
        life.check_usable()


class Moves(ConsumerLife):
    """A life that keeps its states."""

    def __init__(self) -> None:
        self.seen: list[ConsumerState] = []
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "state":
            self.seen.append(value)


WHOLE_LIFE = [NEW, STARTING, RUNNING, CLOSING, CLOSED]


@pytest.mark.anyio
@EACH_API
async def test_consumer_moves_from_start_to_close(
    monkeypatch: pytest.MonkeyPatch, consumer_class: Any
) -> None:
    monkeypatch.setattr("kohort.consumer.driver._driver.ConsumerLife", Moves)
    with Cluster(topics={"orders": 1}) as cluster:
        consumer = consumer_class("orders", bootstrap_servers=cluster.bootstrap_servers)
        assert consumer._driver.life.state is ConsumerState.NEW
        async with consumer:
            await consumer.poll()
        assert consumer._driver.life.seen == WHOLE_LIFE
