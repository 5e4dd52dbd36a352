"""Quick steps of iteration notice every change that slow steps notice."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.consumer.driver._background_task import loop_clock
from kohort.consumer.driver._iteration_buffer import IterationBuffer
from kohort.errors import WakeupError
from kohort.records import ConsumerRecord, SyncIteration, WakeUp
from kohort.subscription import SubscriptionState
from kohort.testing import Cluster
from tests.consumer.kit import AnyConsumer
from tests.support.awaited import EACH_API_ON_ASYNCIO

RECORDS = 20
QUICK = 7
"""Number of a record of a quick step, with quick steps before and after it."""
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Steps(SyncIteration):
    """An iterator over an iteration buffer that counts its slow steps."""

    def __init__(self, buffer: IterationBuffer, until: float = math.inf) -> None:
        self.buffer = buffer
        self._record_run = buffer.run
        self.until = until
        self.slow = 0

    def __iter__(self) -> Steps:
        return self

    def _step(self) -> ConsumerRecord[Any, Any]:
        self.slow += 1
        self.buffer.end_run()
        self.buffer.run.wake_up.is_set = False
        record = self.buffer.next_after_consumed()
        if record is None:
            raise StopIteration
        self.buffer.start_run(self.until)
        return record


class Held:
    """An iteration buffer with twenty records of each of two partitions."""

    def __init__(self, epochs: Callable[[int], int] = lambda offset: 3) -> None:
        self.subscription = SubscriptionState()
        self.subscription.assign([T0, T1])
        drained = {}
        for tp in (T0, T1):
            self.subscription.seek(tp, 0)
            drained[tp] = [
                ConsumerRecord[Any, Any](*tp, offset=2 * n, leader_epoch=epochs(2 * n))
                for n in range(RECORDS)
            ]
        self.time = 0.0
        self.buffer = IterationBuffer(self.subscription, clock=lambda: self.time)
        self.buffer.load(drained)

    def steps(self, until: float = math.inf) -> Steps:
        """Return an iterator that steps as a consumer does, with quick and slow steps."""
        return Steps(self.buffer, until)

    def place(self, tp: TopicPartition = T0) -> tuple[int | None, int | None, int]:
        """Return the position, the offset to commit, and its leader epoch."""
        state = self.subscription.partition(tp)
        assert state is not None
        return state.position, state.consumed, state.consumed_epoch


def test_iteration_goes_by_partition_and_moves_the_positions() -> None:
    held = Held()
    given = []
    steps = held.steps()
    for record in steps:
        given.append(record.offset)
        position, consumed, _ = held.place(TopicPartition(record.topic, record.partition))
        assert record.offset < (position or 0) <= record.offset + 2
        assert (given[-2] if record.offset else -1) < (consumed or 0) <= record.offset
    assert given == [2 * n for n in range(RECORDS)] * 2
    assert not held.buffer
    assert len(given) - steps.slow > RECORDS


def test_consumed_offset_has_the_leader_epoch_of_its_record() -> None:
    held = Held(lambda offset: offset // 10)
    before = -1
    for record in held.steps():
        if record.partition:
            break
        assert held.place()[2] == before
        before = record.leader_epoch


@pytest.mark.parametrize("change", ["seek", "pause", "revoke", "stop_delivery", "unsubscribe"])
def test_a_change_of_the_partition_counts_for_the_next_step(change: str) -> None:
    held = Held()
    subscription = held.subscription
    changes: dict[str, Callable[[], object]] = {
        "seek": lambda: subscription.seek(T0, 1),
        "pause": lambda: subscription.pause([T0]),
        "revoke": lambda: subscription.revoke([T0]),
        "stop_delivery": lambda: subscription.mark_pending_revocation([T0]),
        "unsubscribe": subscription.unsubscribe,
    }
    steps = held.steps()
    assert [next(steps).offset for _ in range(QUICK)][-1] == 2 * (QUICK - 1)
    changes[change]()
    rest = list(steps)
    assert {record.partition for record in rest} == ({1} if change != "unsubscribe" else set())
    if change == "seek":
        assert held.place()[0] == 1
    if change == "pause":
        subscription.resume([T0])
        assert next(held.steps()).offset == 2 * QUICK


def test_what_is_taken_in_between_is_not_given_again() -> None:
    held = Held()
    steps = held.steps()
    for _ in range(QUICK):
        next(steps)
    taken = held.buffer.take(3)[T0]
    one = held.buffer.next()
    assert one is not None
    offsets = [*(record.offset for record in taken), one.offset, next(steps).offset]
    assert offsets == [2 * (QUICK + n) for n in range(5)]


def test_a_run_is_over_when_the_session_is_in_doubt() -> None:
    held = Held()
    steps = held.steps(until=5.0)
    for _ in range(QUICK):
        next(steps)
    assert steps.slow == 1
    held.time = 5.0
    held.buffer._may_deliver = lambda: False
    assert list(steps) == []
    held.buffer._may_deliver = lambda: True
    assert next(held.steps()).offset == 2 * QUICK


def test_in_the_child_of_a_fork_no_run_goes_on() -> None:
    wake_up = WakeUp()
    wake_up.is_set = False
    with warnings.catch_warnings():  # This process has threads. The child only exits.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        os._exit(0 if wake_up.is_set else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not wake_up.is_set


@pytest.fixture
def tp(cluster: Cluster, topic: str) -> TopicPartition:
    cluster.produce(topic, [b"%d" % n for n in range(RECORDS)], partition=0)
    return TopicPartition(topic, 0)


async def quick_steps(consumer: AnyConsumer) -> int:
    """Step until the steps are quick. Return the next offset."""
    async for record in consumer:
        if record.offset == QUICK:
            break
    return record.offset + 1


@pytest.mark.anyio
@EACH_API_ON_ASYNCIO
async def test_quick_steps_of_a_consumer_see_everything(
    tp: TopicPartition, options: dict[str, Any], consumer_class: Any
) -> None:
    async with consumer_class(**options) as consumer:
        consumer.assign([tp])
        offset = await quick_steps(consumer)
        assert await consumer.position(tp) == offset == QUICK + 1
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await anext(consumer)
        assert (await anext(consumer)).offset == offset
        consumer.seek(tp, 0)
        assert await quick_steps(consumer) == offset
        polled = (await consumer.poll(25_000, max_records=2))[tp]
        assert [record.offset for record in polled] == [offset, offset + 1]
        assert (await anext(consumer)).offset == offset + 2
        consumer.seek(tp, 0)
        async for record in consumer:
            if record.offset == QUICK:
                await consumer.close()
        assert record.offset == QUICK


@pytest.mark.anyio
async def test_the_clock_is_that_of_the_event_loop() -> None:
    clock = loop_clock(anyio.lowlevel.current_token().native_token)
    assert abs(clock() - anyio.current_time()) < 20
