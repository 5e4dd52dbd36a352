"""Steps of iteration: the record of a step, and the calls of _step()."""

from __future__ import annotations

import asyncio
import gc
import importlib
import math
import os
import time
import warnings
import weakref
from collections.abc import Callable
from types import CoroutineType, ModuleType
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from kohort.records import ConsumerRecord

COUNT = 10
SLOW = ConsumerRecord[Any, Any]("slow", 0, offset=-1)


@pytest.fixture
def module(decoder: ModuleType) -> ModuleType:
    """The module of iteration, plain or compiled as the decoder is."""
    compiled = decoder.__name__.endswith("_c")
    return importlib.import_module(f"kohort.records._iteration{'_c' if compiled else ''}")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run_of(module: ModuleType, clock: Callable[[], float], until: float = 1.0) -> Any:
    wake_up = module.WakeUp()
    wake_up.is_set = False
    run = module.RecordRun(wake_up, clock)
    records = [ConsumerRecord[Any, Any]("t", 0, offset=n) for n in range(COUNT)]
    run.begin(records, 2, COUNT - 1, until)
    return run


def iterator(module: ModuleType, run: Any) -> Any:
    class Iterator(module.SyncIteration):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator:
            return self

        def _step(self) -> ConsumerRecord[Any, Any]:
            if run.stop == 0:
                raise StopIteration
            return SLOW

    made = Iterator()
    made._record_run = run
    return made


def async_iterator(module: ModuleType, run: Any, clock: Callable[[], float] = float) -> Any:
    class AsyncIterator(module.AsyncIteration):  # type: ignore[misc, name-defined]
        def __aiter__(self) -> AsyncIterator:
            return self

        async def _step(self) -> ConsumerRecord[Any, Any]:
            await checkpoint()
            if run.index < run.stop and not run.wake_up.is_set and clock() < run.until:
                run.index += 1
                record: ConsumerRecord[Any, Any] = run.records[run.index - 1]
                return record
            if run.stop == 0:
                raise StopAsyncIteration
            return SLOW

    made = AsyncIterator()
    made._record_run = run
    return made


def test_steps_take_the_records_of_the_run_in_order(module: ModuleType) -> None:
    run = run_of(module, Time())
    steps = iterator(module, run)
    assert [run.latest] == [None]
    for offset in range(2, COUNT - 1):
        record = next(steps)
        assert run.latest is record
        assert record.offset == offset
    assert next(steps) is SLOW
    run.end()
    assert run.latest is None
    assert list(steps) == []


@pytest.mark.parametrize("change", ["bell", "time", "end"])
def test_a_step_takes_nothing_after_a_change(module: ModuleType, change: str) -> None:
    clock = Time()
    run = run_of(module, clock)
    steps = iterator(module, run)
    next(steps)
    if change == "bell":
        run.wake_up.set()
    elif change == "time":
        clock.now = 1.0
    else:
        run.end()
    assert next(steps, SLOW) is SLOW
    assert run.index == (0 if change == "end" else 3)


def test_a_step_notes_its_time_at_the_bell(module: ModuleType) -> None:
    clock = Time()
    run = run_of(module, clock)
    assert run.wake_up.taken_at == -math.inf
    clock.now = 0.5
    next(iterator(module, run))
    assert run.wake_up.taken_at == 0.5


def test_the_clock_of_a_run_can_be_replaced(module: ModuleType) -> None:
    later = Time()
    later.now = 2.0
    run = run_of(module, Time())
    run.set_clock(later)
    assert next(iterator(module, run)) is SLOW


def test_a_run_ends_in_time_by_the_monotonic_clock(module: ModuleType) -> None:
    run = run_of(module, time.monotonic, until=time.monotonic() + 0.05)
    steps = iterator(module, run)
    assert next(steps).offset == 2
    began = time.monotonic()
    assert began - 0.1 < run.wake_up.taken_at <= began
    while run.index < run.stop:
        run.index = 2
        if next(steps) is SLOW:
            break
    assert 0 < time.monotonic() - began < 0.05 + 60.0
    assert time.monotonic() >= run.until


def test_an_iterator_without_a_run_raises(module: ModuleType) -> None:
    class Iterator(module.SyncIteration):  # type: ignore[misc, name-defined]
        pass

    with pytest.raises(AttributeError):
        next(Iterator())


def test_a_forked_child_takes_nothing(module: ModuleType) -> None:
    run = run_of(module, Time())
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # This process has threads. The child only exits.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        os.write(writer, b"1" if run.wake_up.is_set else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 1) == b"1"
    assert not run.wake_up.is_set
    os.close(reader)
    os.close(writer)


@pytest.mark.anyio
async def test_async_steps_take_the_records_in_order(module: ModuleType) -> None:
    run = run_of(module, Time())
    offsets = []
    async for record in async_iterator(module, run):
        if record is SLOW:
            run.end()
        else:
            offsets.append(record.offset)
    assert offsets == list(range(2, COUNT - 1))


@pytest.mark.anyio
async def test_an_async_step_takes_a_record_when_awaited(module: ModuleType) -> None:
    clock = Time()
    run = run_of(module, clock)
    steps = async_iterator(module, run, clock)
    first, second = anext(steps), anext(steps)
    assert run.index == 2
    assert [(await second).offset, (await first).offset] == [2, 3]
    third = anext(steps)
    clock.now = 1.0
    assert await third is SLOW
    assert run.index == 4


@pytest.mark.anyio
async def test_an_async_step_is_awaited_once(module: ModuleType) -> None:
    step = anext(async_iterator(module, run_of(module, Time())))
    await step
    with pytest.raises(RuntimeError):
        await step


@pytest.mark.anyio
async def test_each_async_step_is_an_awaitable_of_its_own(module: ModuleType) -> None:
    steps = async_iterator(module, run_of(module, Time()))
    first = anext(steps)
    assert (await first).offset == 2
    second = anext(steps)
    assert second is not first
    first.close()
    with pytest.raises(RuntimeError):
        await first
    assert (await second).offset == 3


@pytest.mark.anyio
async def test_two_tasks_cannot_await_one_async_step(module: ModuleType) -> None:
    clock = Time()
    run = run_of(module, clock)
    step = anext(async_iterator(module, run, clock))
    clock.now = 1.0  # so the step waits
    outcomes: list[object] = []

    async def wait() -> None:
        try:
            outcomes.append(await step)
        except RuntimeError as error:
            outcomes.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
    assert outcomes == ["coroutine is being awaited already", SLOW]


@pytest.mark.anyio
async def test_a_cancelled_async_step_takes_nothing(module: ModuleType) -> None:
    clock = Time()
    run = run_of(module, clock)
    steps = async_iterator(module, run, clock)
    step = anext(steps)
    clock.now = 1.0  # so the step waits
    with anyio.CancelScope() as scope:
        scope.cancel()
        await step
    assert scope.cancelled_caught
    assert run.index == 2


@pytest.mark.anyio
async def test_a_task_may_run_an_async_step(module: ModuleType) -> None:
    run = run_of(module, Time())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(async_iterator(module, run).__anext__)
    assert run.index == 3


def test_an_asyncio_task_cancelled_at_once_takes_nothing(module: ModuleType) -> None:
    async def main() -> None:
        run = run_of(module, Time())
        steps = async_iterator(module, run)
        task = asyncio.create_task(anext(steps))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert run.index == 2
        assert (await asyncio.wait_for(anext(steps), 60)).offset == 2
        assert (await asyncio.create_task(anext(steps))).offset == 3

    asyncio.run(main())


def test_an_async_step_ends_as_a_coroutine_does(module: ModuleType) -> None:
    clock = Time()
    run = run_of(module, clock)
    steps = async_iterator(module, run, clock)
    step = anext(steps)
    with pytest.raises(ZeroDivisionError):
        step.throw(ZeroDivisionError())
    step = anext(steps)
    step.close()
    step.close()
    step = anext(steps)
    with pytest.raises(TypeError):
        step.send(1)
    step.close()
    assert run.index == 2


def test_an_abandoned_async_step_frees_its_iterator(module: ModuleType) -> None:
    run = run_of(module, Time())
    steps = async_iterator(module, run)
    steps.step = step = anext(steps)
    if isinstance(step, CoroutineType):
        step.close()  # Python warns of a coroutine that is not awaited
    gone = weakref.ref(steps)
    del steps, step
    gc.collect()
    assert gone() is None


def test_an_iterator_is_freed_at_once_after_an_unused_async_step(module: ModuleType) -> None:
    gc.collect()
    gc.disable()
    try:
        steps = async_iterator(module, run_of(module, Time()))
        step = anext(steps)
        if isinstance(step, CoroutineType):
            step.close()
        gone = weakref.ref(steps)
        del steps, step
        assert gone() is None
    finally:
        gc.enable()
