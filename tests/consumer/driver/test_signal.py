"""The slices of a thread's wait, in seconds."""

from __future__ import annotations

import threading

import pytest

from kohort.consumer.driver import _signal
from kohort.consumer.driver._signal import ThreadSignal, wait_slices


class Clock:
    """A clock that moves only in waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def waits(clock: Clock, timeout: float) -> list[float]:
    """Return all slices of a wait that runs to its end."""
    found = []
    for seconds in wait_slices(timeout):
        found.append(seconds)
        clock.now += seconds
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_signal, "time", clock)
    return clock


def test_slices_grow_to_a_second_in_the_main_thread(clock: Clock) -> None:
    assert waits(clock, 5.0) == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 0.5])


def test_another_thread_waits_in_one_piece(clock: Clock) -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.extend(waits(clock, 5.0)))
    thread.start()
    thread.join()
    assert found == pytest.approx([5.0])


def test_no_slice_when_no_time_is_left(clock: Clock) -> None:
    assert waits(clock, 0.0) == []


def test_wait_ends_at_once_when_notified_before() -> None:
    signal = ThreadSignal()
    signal.notify()
    signal.notify()
    signal.wait(60.0)
