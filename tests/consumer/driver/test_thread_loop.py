"""The event loop of the consumer thread, and the pauses of a caller that polls in a loop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from kohort.consumer.driver import _signal
from kohort.consumer.driver._signal import (
    MAX_PAUSE_SECONDS,
    PAUSE_INTERVAL_SECONDS,
    PAUSE_SECONDS,
    PollPauses,
    ThreadSignal,
)
from kohort.consumer.driver._thread_loop import WatchedSelector, new_event_loop


class Signal(ThreadSignal):
    """A clock that moves only in waits. ``comes_at`` is the time of the notification."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.comes_at = float("inf")
        self.waits = 0

    def monotonic(self) -> float:
        return self.now

    def wait_once(self, timeout: float) -> bool:
        self.waits += 1
        self.now += timeout
        return self.now >= self.comes_at


@pytest.fixture
def signal(monkeypatch: pytest.MonkeyPatch) -> Signal:
    signal = Signal()
    monkeypatch.setattr(_signal, "time", signal)
    return signal


def idle() -> bool:
    return False


def busy() -> bool:
    return True


def test_pause_is_short_when_the_consumer_thread_is_idle(signal: Signal) -> None:
    assert not PollPauses(signal).pause(idle)
    assert signal.now == pytest.approx(100.0 + PAUSE_SECONDS)


def test_no_second_pause_before_its_time(signal: Signal) -> None:
    pauses = PollPauses(signal)
    pauses.pause(idle)
    signal.now += PAUSE_INTERVAL_SECONDS * 0.9
    assert not pauses.pause(idle)
    assert signal.waits == 1
    signal.now += PAUSE_INTERVAL_SECONDS * 0.2
    pauses.pause(idle)
    assert signal.waits == 2


def test_pause_lasts_while_the_consumer_thread_works(signal: Signal) -> None:
    signal.comes_at = 100.0 + MAX_PAUSE_SECONDS / 2
    assert PollPauses(signal).pause(busy)
    assert signal.now == pytest.approx(signal.comes_at, abs=PAUSE_SECONDS)


@pytest.mark.parametrize("is_busy", [idle, busy])
def test_pause_has_a_limit(signal: Signal, is_busy: Callable[[], bool]) -> None:
    assert not PollPauses(signal).pause(is_busy)
    assert signal.now <= 100.0 + MAX_PAUSE_SECONDS + PAUSE_SECONDS


@pytest.mark.skipif(sys.platform == "win32", reason="its event loop has no selector")
def test_event_loop_is_busy_except_when_it_waits() -> None:
    loop, is_busy = new_event_loop()
    waiting, go_on = threading.Event(), threading.Event()
    seen: list[bool] = []

    def work() -> None:
        seen.append(is_busy())
        loop.call_later(60, loop.stop)

    def end() -> None:
        seen.append(is_busy())
        go_on.set()
        loop.stop()

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    loop.call_soon(work)
    thread.start()
    selector = loop._selector  # type: ignore[attr-defined]
    assert isinstance(selector, WatchedSelector)
    while is_busy():  # the loop waits after it ran work()
        waiting.wait(0.001)
    loop.call_soon_threadsafe(end)
    thread.join(60)
    assert go_on.is_set() and seen == [True, True]
    loop.close()
