"""Paused cores: the tasks below one task do not run for a while, all others do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from trio._core import _run as scheduler
from trio.lowlevel import Task

from kohort import AsyncKafkaConsumer

_paused: dict[Task, list[Task]] = {}
"""First task of each paused core, and its tasks that are ready to run."""


def core_of(consumer: AsyncKafkaConsumer) -> Task | None:
    """Return the first task of a consumer's core. None before its start and after its end."""
    group: Any = getattr(consumer._driver.background_task, "_group", None)
    nursery = getattr(group, "_nursery", None)
    tasks = [] if nursery is None else list(nursery.child_tasks)
    found = [task for task in tasks if "_TaskGroupTask.start" in task.name]
    return found[0] if found else None


def pause(core: Task) -> Callable[[], None]:
    """Keep a core from running. Return a function that ends that."""
    _paused.setdefault(core, [])

    def resume() -> None:
        for task in _paused.pop(core, []):
            scheduler.GLOBAL_RUN_CONTEXT.runner.runq.append(task)

    return resume


def _paused_above(task: Task) -> Task | None:
    above: Task | None = task
    while above is not None and above not in _paused:
        nursery = above.parent_nursery
        above = None if nursery is None else nursery.parent_task
    return above


@contextmanager
def pausable() -> Iterator[None]:
    """Allow cores to be paused within the block."""
    schedule: Callable[..., None] = scheduler.Runner.reschedule

    def reschedule(runner: scheduler.Runner, task: Task, *outcome: Any) -> None:
        schedule(runner, task, *outcome)
        core = _paused_above(task) if _paused else None
        if core is not None:
            assert runner.runq.pop() is task
            _paused[core].append(task)

    with patch.object(scheduler.Runner, "reschedule", reschedule):
        yield
    _paused.clear()
