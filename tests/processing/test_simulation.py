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
from kohort.processing._context import Slot
from kohort.processing._core import Core
from kohort.processing._in_tasks import AsyncProcessor
from kohort.processing._partition import Lane, Partition
from kohort.processing._stored import StoredOffsets
from kohort.processing.stores._sql import SqlSession
from kohort.producer import RecordProducer, _producer
from kohort.producer._reactions import Reaction
from kohort.records import NewRecord
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
    def checked(handler: Callable[..., Any], kind: str) -> Callable[..., Any]:
        async def call(record: ConsumerRecord[Any, Any]) -> Any:
            while True:
                try:
                    return await handler(record)
                except BoomError:
                    await anyio.sleep(8.0)

        return call

    return patch.object(_in_tasks, "checked_handler", checked)


def start_slots_without_a_limit() -> AbstractContextManager[Any]:
    def start(processor: AsyncProcessor) -> None:
        if processor._core.ready:
            processor._group.start_soon(processor._run_slot, Slot())

    return patch.object(AsyncProcessor, "_start_slot", start)


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


def do_not_wait_for_letters() -> AbstractContextManager[Any]:
    """Count a record as done when its letter is queued."""

    async def send(producer: RecordProducer, topic: str, fields: Any, **options: Any) -> Any:
        partition = options["like"] % await producer.partition_count(topic, options["timeout"])
        return producer.post(topic, partition, NewRecord(*fields), timeout=options["timeout"])

    return patch.object(RecordProducer, "send", send)


def new_identity_for_each_attempt() -> AbstractContextManager[Any]:
    """Send a letter again so that the broker cannot know it."""
    return patch.object(_producer, "reaction_to", lambda error: Reaction.NEW_ID)


def advance_before_the_letter() -> AbstractContextManager[Any]:
    """Store the end of a failed record, and then write its letter."""

    def early(processor: Any, policy: Any, stored: Any) -> Any:
        async def call(record: Any, error: Exception, attempts: int) -> None:
            await processor._in_store(stored.advance(record))
            await policy(record, error, attempts)

        return call

    return patch.object(AsyncProcessor, "_and_advance", early)


def write_letters_again() -> AbstractContextManager[Any]:
    """Forget that a letter is written when the database fails after it."""
    return patch.object(StoredOffsets, "advance", lambda stored, load: stored._store(load, None))


def store_without_a_condition() -> AbstractContextManager[Any]:
    """Replace the stored offset whatever it is."""
    statement = SqlSession._statement

    def bare(session: SqlSession, text: str, values: tuple[Any, ...]) -> Any:
        if text.startswith("UPDATE"):
            text, values = text.replace(" AND next_offset = ?", ""), values[:-1]
        return statement(session, text, values)

    return patch.object(SqlSession, "_statement", bare)


def bury_while_drained() -> AbstractContextManager[Any]:
    """Give a failed batch to its policy whole while its partition is drained."""
    is_divisible = Core._is_divisible

    def open_only(core: Core, lane: Lane) -> bool:
        return is_divisible(core, lane) and not lane.partition.is_closed

    return patch.object(Core, "_is_divisible", open_only)


BUGS = (
    commit_past_a_gap,
    share_lanes,
    retry_in_the_slot,
    start_slots_without_a_limit,
    take_foreign_done_sets,
    ignore_the_window,
    forget_running_lanes,
    forget_done_sets,
    do_not_wait_for_letters,
    new_identity_for_each_attempt,
    advance_before_the_letter,
    write_letters_again,
    store_without_a_condition,
    bury_while_drained,
)


@pytest.mark.long  # each simulates until it is found
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", BUGS)
def test_a_planted_bug_is_found(plant: Callable[[], AbstractContextManager[Any]]) -> None:
    with plant():
        found = next(filter(simulate, range(100)), None)
    assert found is not None
    assert simulate(found) == []
