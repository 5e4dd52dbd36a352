"""Random lives of a group of process(): none violates anything, and planted bugs are found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from kohort import ConsumerRecord
from kohort.processing import _done_set, _in_tasks
from kohort.processing._core import Core
from kohort.processing._partition import Lane, Partition
from tests.processing.simulation import BoomError, simulate

SEEDS = range(6)
"""Seeds of a plain run. ``python -m tests.processing.simulation --seeds 1000`` has others."""


@pytest.mark.timeout(600)
def test_no_seed_violates_anything() -> None:
    found = {seed: violations for seed in SEEDS if (violations := simulate(seed))}
    assert found == {}


def commit_past_a_gap() -> AbstractContextManager[Any]:
    return patch.object(Partition, "lowest", lambda partition: partition.seen)


def share_lanes() -> AbstractContextManager[Any]:
    """Let keys of equal parity share a lane."""

    def line_up(core: Core, partition: Partition, records: list[Any]) -> None:
        for record in records:
            key = (record.key or b"0")[-1] % 2
            lane = partition.lanes.get(key)
            if lane is None:
                partition.lanes[key] = lane = Lane(partition, key, record)
                core.ready.append(lane)
            else:
                lane.queue = lane.queue or deque()
                lane.queue.append(record)

    return patch.object(Core, "_line_up", line_up)


def retry_in_the_slot() -> AbstractContextManager[Any]:
    def checked(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def call(record: ConsumerRecord[Any, Any]) -> Any:
            while True:
                try:
                    return await handler(record)
                except BoomError:
                    await anyio.sleep(8.0)

        return call

    return patch.object(_in_tasks, "checked_handler", checked)


def take_foreign_done_sets() -> AbstractContextManager[Any]:
    return patch.object(_done_set, "PREFIX", "")


def ignore_the_window() -> AbstractContextManager[Any]:
    def take(core: Core, partition: Partition, records: Any) -> None:
        core._line_up(partition, partition.take(list(records)))

    return patch.object(Core, "_take", take)


def forget_running_lanes() -> AbstractContextManager[Any]:
    """Hand a partition over while handlers run."""
    return patch.object(Core, "running_of", lambda core, tps=None: [])


def forget_done_sets() -> AbstractContextManager[Any]:
    to_commit = Partition.to_commit

    def bare(partition: Partition, *, with_done: bool, longest: int) -> Any:
        return to_commit(partition, with_done=False, longest=longest)

    return patch.object(Partition, "to_commit", bare)


BUGS = (
    commit_past_a_gap,
    share_lanes,
    retry_in_the_slot,
    take_foreign_done_sets,
    ignore_the_window,
    forget_running_lanes,
    forget_done_sets,
)


@pytest.mark.long  # each simulates until it is found
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Callable[[], AbstractContextManager[Any]]) -> None:
    with plant():
        found = next(filter(simulate, range(60)), None)
    assert found is not None
    assert simulate(found) == []
