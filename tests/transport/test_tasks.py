"""Tasks and callbacks that leave nothing for the garbage collector."""

from __future__ import annotations

import gc
import weakref

import anyio
import anyio.lowlevel
import pytest

from kohort.transport import start_soon, weak_callback

pytestmark = pytest.mark.anyio


class Owner:
    """An object that a task or a callback refers to."""

    async def sleep(self) -> None:
        await anyio.sleep_forever()

    def twice(self, number: int) -> int:
        return 2 * number


async def test_task_frees_its_objects_when_group_is_cancelled() -> None:
    gc.collect()
    gc.disable()
    try:
        owner = Owner()
        ref = weakref.ref(owner)
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, owner.sleep)
            del owner
            await anyio.wait_all_tasks_blocked()
            assert ref() is not None
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()
        assert ref() is None
    finally:
        gc.enable()


async def test_time_limit_raises_when_only_tasks_are_left() -> None:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            async with anyio.create_task_group() as tasks:
                start_soon(tasks, anyio.sleep_forever)


async def test_time_limit_ends_its_block_when_tasks_are_left() -> None:
    went_on = False
    with anyio.move_on_after(0.01) as scope:
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, anyio.sleep_forever)
        went_on = True
    assert (went_on, scope.cancelled_caught) == (False, True)


async def test_task_error_is_raised_when_the_group_is_cancelled() -> None:
    async def fail() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("no")

    with pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, fail)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert [str(error) for error in raised.value.exceptions] == ["no"]


async def test_task_error_cancels_the_group_when_it_raises() -> None:
    async def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ExceptionGroup) as raised:
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, fail, "no")
            await anyio.sleep_forever()
    assert [str(error) for error in raised.value.exceptions] == ["no"]


async def test_weak_callback_raises_when_its_object_is_gone() -> None:
    owner = Owner()
    twice = weak_callback(owner.twice)
    assert twice(21) == 42
    del owner
    with pytest.raises(ReferenceError, match="is gone"):
        twice(21)
