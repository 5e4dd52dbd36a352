"""The order of the caller and of the next fetch when records came."""

from __future__ import annotations

import asyncio
import threading
import time

import anyio
import pytest

from kohort.consumer._handover import QUICK_SECONDS
from kohort.consumer._thread import CoreThread
from kohort.consumer._work import CoreLink, Mailbox


class Core(CoreLink):
    def __init__(self) -> None:
        self.gave_way = 0

    async def give_way(self) -> None:
        self.gave_way += 1


class Caller:
    """A mailbox whose clock stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.core = Core()
        self.mailbox = Mailbox(self.core, lambda: None, lambda: self.now)

    async def receive(self, seconds: float) -> None:
        """Be notified inside poll(), and be in poll() again after these seconds."""
        await self.mailbox.hand_over()
        self.mailbox.left_poll()
        self.now += seconds
        self.mailbox.entered_poll()


@pytest.fixture
def caller() -> Caller:
    found = Caller()
    found.mailbox.entered_poll()
    return found


@pytest.mark.anyio
async def test_a_caller_goes_first_when_it_was_quick(caller: Caller) -> None:
    await caller.receive(QUICK_SECONDS / 2)
    await caller.receive(QUICK_SECONDS / 2)
    assert caller.core.gave_way == 2


@pytest.mark.anyio
async def test_the_fetch_goes_first_when_the_caller_was_slow(caller: Caller) -> None:
    await caller.receive(2 * QUICK_SECONDS)
    await caller.receive(QUICK_SECONDS / 2)
    assert caller.core.gave_way == 1


@pytest.mark.anyio
async def test_a_caller_goes_first_again_when_it_became_quick(caller: Caller) -> None:
    await caller.receive(2 * QUICK_SECONDS)
    await caller.receive(QUICK_SECONDS / 2)
    await caller.receive(QUICK_SECONDS / 2)
    assert caller.core.gave_way == 2


@pytest.mark.anyio
async def test_a_caller_stays_slow_when_its_polls_end_in_vain(caller: Caller) -> None:
    await caller.receive(2 * QUICK_SECONDS)
    caller.mailbox.left_poll()
    caller.mailbox.entered_poll()
    await caller.receive(0.0)
    assert caller.core.gave_way == 1


@pytest.mark.anyio
async def test_nobody_is_given_way_when_the_caller_is_outside(caller: Caller) -> None:
    caller.mailbox.left_poll()
    await caller.mailbox.hand_over()
    assert caller.core.gave_way == 0


def test_a_notified_task_runs_when_the_core_gives_way() -> None:
    async def main() -> None:
        order: list[str] = []
        notified = asyncio.get_running_loop().create_future()

        async def wait() -> None:
            await notified
            order.append("caller")

        caller = asyncio.create_task(wait())
        await asyncio.sleep(0)
        notified.set_result(None)
        await CoreLink().give_way()
        order.append("core")
        await caller
        assert order == ["caller", "core"]

    asyncio.run(main())


def test_a_notified_thread_runs_when_the_core_gives_way() -> None:
    class Idle:
        async def run(self, started: object) -> None:
            raise AssertionError

    thread = CoreThread(Idle(), "idle")
    ran = threading.Event()
    waiting = threading.Lock()
    waiting.acquire()

    def wait() -> None:
        waiting.acquire()
        ran.set()

    caller = threading.Thread(target=wait)
    caller.start()
    waiting.release()
    until = time.monotonic() + 5
    while not ran.is_set() and time.monotonic() < until:
        asyncio.run(thread.give_way())
    caller.join()
    thread.withdraw()
    assert ran.is_set()


def test_trio_goes_on_at_once_when_the_core_gives_way() -> None:
    anyio.run(CoreLink().give_way, backend="trio")
