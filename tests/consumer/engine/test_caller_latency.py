"""The order of the caller and the next fetch when records arrive."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from kohort.consumer.driver._thread import ConsumerThread
from kohort.consumer.engine._callback_queue import (
    CONTENDED_PAUSE_SECONDS,
    SHORT_LATENCY_SECONDS,
    CallbackQueue,
    CallersLoop,
    LockRelease,
)
from kohort.transport import TaskSignal


class FakeLoop(CallersLoop):
    def __init__(self) -> None:
        self.yielded = 0

    def yield_to_caller(self) -> None:
        self.yielded += 1


class Caller:
    """A caller with a callback queue, whose clock moves only by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.loop = FakeLoop()
        self.callback_queue = CallbackQueue(self.loop, lambda: None, lambda: self.now)

    def receive(self, seconds: float) -> None:
        """Receive a notification inside poll() and enter poll() again after these seconds."""
        self.callback_queue.notify_waiting_caller()
        self.callback_queue.leave_poll()
        self.now += seconds
        self.callback_queue.enter_poll()


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.callback_queue.enter_poll()
    return found


def test_a_caller_goes_first_when_it_was_quick(caller: Caller) -> None:
    caller.receive(SHORT_LATENCY_SECONDS / 2)
    caller.receive(SHORT_LATENCY_SECONDS / 2)
    assert caller.loop.yielded == 2


def test_the_fetch_goes_first_when_the_caller_was_slow(caller: Caller) -> None:
    caller.receive(2 * SHORT_LATENCY_SECONDS)
    caller.receive(SHORT_LATENCY_SECONDS / 2)
    assert caller.loop.yielded == 1


def test_a_caller_goes_first_again_when_it_became_quick(caller: Caller) -> None:
    caller.receive(2 * SHORT_LATENCY_SECONDS)
    caller.receive(SHORT_LATENCY_SECONDS / 2)
    caller.receive(SHORT_LATENCY_SECONDS / 2)
    assert caller.loop.yielded == 2


def test_a_caller_stays_slow_when_its_polls_end_in_vain(caller: Caller) -> None:
    caller.receive(2 * SHORT_LATENCY_SECONDS)
    caller.callback_queue.leave_poll()
    caller.callback_queue.enter_poll()
    caller.receive(0.0)
    assert caller.loop.yielded == 1


def test_nobody_is_given_way_when_the_caller_is_outside(caller: Caller) -> None:
    caller.callback_queue.leave_poll()
    assert not caller.callback_queue.notify_waiting_caller()
    assert caller.loop.yielded == 0


class Lock:
    """The interpreter lock. Another thread keeps it for some time after each release."""

    def __init__(self, kept_for: float) -> None:
        self.kept_for = kept_for
        self.now = 100.0
        self.releases = 0
        self.release = LockRelease(lambda: self.now, self._sleep).release

    def _sleep(self, seconds: float) -> None:
        self.releases += 1
        self.now += max(seconds, self.kept_for)


def test_the_lock_is_released_each_time_when_no_thread_keeps_it() -> None:
    lock = Lock(kept_for=0.0)
    for _ in range(10):
        lock.release()
    assert lock.releases == 10


def test_the_lock_is_kept_for_a_while_when_a_thread_kept_it() -> None:
    lock = Lock(kept_for=0.005)
    for _ in range(10):
        lock.release()
    assert lock.releases == 1
    lock.now += CONTENDED_PAUSE_SECONDS
    lock.release()
    lock.release()
    assert lock.releases == 2


def test_a_notified_task_runs_before_the_fetch_is_sent() -> None:
    async def main() -> None:
        order: list[str] = []
        signal = TaskSignal()
        callback_queue = CallbackQueue(CallersLoop(), signal.notify, time.monotonic)
        answered = asyncio.get_running_loop().create_future()

        async def wait_for_records() -> None:
            callback_queue.enter_poll()
            await signal.event().wait(60)
            order.append("caller")

        async def fetch() -> None:
            await answered
            order.append("fetch")

        tasks = [asyncio.create_task(fetch()), asyncio.create_task(wait_for_records())]
        await asyncio.sleep(0)
        assert callback_queue.notify_waiting_caller()
        answered.set_result(None)
        await asyncio.gather(*tasks)
        assert order == ["caller", "fetch"]

    asyncio.run(main())


def test_a_notified_thread_runs_when_the_core_gives_way() -> None:
    class Idle:
        async def run(self, started: object) -> None:
            raise AssertionError

    thread = ConsumerThread(Idle(), "idle")
    ran = threading.Event()
    waiting = threading.Lock()
    waiting.acquire()

    def wait() -> None:
        waiting.acquire()
        ran.set()

    caller = threading.Thread(target=wait)
    caller.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # Without yield_to_caller() the interpreter would switch threads.
    try:
        waiting.release()
        until = time.monotonic() + 60
        while not ran.is_set() and time.monotonic() < until:
            thread.yield_to_caller()
        ran_in_time = ran.is_set()
    finally:
        sys.setswitchinterval(interval)
    caller.join()
    thread.end_unstarted()
    assert ran_in_time
