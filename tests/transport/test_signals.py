"""OneShot and TaskSignal, by which tasks of one event loop wake each other."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kohort.transport import OneShot, TaskSignal

pytestmark = pytest.mark.anyio


async def test_one_shot_wakes_all_waiting_tasks_and_later_ones() -> None:
    event, woken = OneShot(), []

    async def wait(name: str) -> None:
        await event.wait()
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "a")
        tasks.start_soon(wait, "b")
        await anyio.wait_all_tasks_blocked()
        assert (event.is_set, woken) == (False, [])
        event.set()
        event.set()
    assert event.is_set
    assert sorted(woken) == ["a", "b"]
    await event.wait()


async def test_one_shot_wait_ends_after_its_timeout() -> None:
    event = OneShot()
    await event.wait(0.001)
    assert not event.is_set


async def test_one_shot_forgets_a_cancelled_wait() -> None:
    event = OneShot()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(event.wait)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    event.set()
    assert not event._futures


async def test_a_set_one_shot_still_lets_a_cancellation_through() -> None:
    event = OneShot()
    event.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await event.wait()
        pytest.fail("the wait was not a checkpoint")
    assert scope.cancelled_caught


async def test_task_signal_wakes_a_task_that_was_notified_before_its_wait() -> None:
    signal = TaskSignal()
    event = signal.event()
    signal.notify()
    await event.wait()
    assert not signal.event().is_set


async def test_task_signal_wakes_each_wait_once() -> None:
    signal, rounds = TaskSignal(), 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await signal.wait()
            rounds += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        for expected in (1, 2, 3):
            await anyio.wait_all_tasks_blocked()
            signal.notify()
            while rounds < expected:
                await checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert rounds == 3
        tasks.cancel_scope.cancel()
