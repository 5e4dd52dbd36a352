"""Timers with one deadline per key, earliest first."""

from __future__ import annotations

from kohort.broker.groups._timers import Timers


def test_the_earliest_comes_first_and_a_moved_one_only_once() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("b", 2)
    timers.schedule("a", 1)
    timers.schedule("a", 3)
    assert timers.next_deadline() == 2
    assert list(timers.pop_due(1.9)) == []
    assert list(timers.pop_due(5)) == ["b", "a"]
    assert timers.next_deadline() is None


def test_a_cancelled_deadline_does_not_come() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 1)
    timers.cancel("a")
    timers.cancel("never there")
    assert list(timers.pop_due(5)) == []


def test_one_that_is_set_while_others_are_due_is_seen_too() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("a", 1)
    seen = []
    for key in timers.pop_due(2):
        seen.append(key)
        if key == "a":
            timers.schedule("b", 2)
    assert seen == ["a", "b"]


def test_a_deadline_that_is_moved_often_does_not_pile_up() -> None:
    timers: Timers[str] = Timers()
    for at in range(10_000):
        timers.schedule("a", at)
    assert len(timers._heap) < 200
    assert timers.next_deadline() == 9_999
