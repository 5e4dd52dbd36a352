"""The listener's contract on AsyncKafkaConsumer, with plain methods and with coroutines."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from kohort.errors import ConsumerClosedError, RebalanceListenerError, ReentrantCallError
from kohort.testing import Cluster
from tests.consumer.conftest import CLASSIC
from tests.consumer.kit import (
    PATIENCE,
    AsyncRecorder,
    Partitions,
    Recorder,
    apoll_until,
    evict,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def polled_only(options: dict[str, Any]) -> dict[str, Any]:
    """Options of consumers that call listeners in polls only."""
    return {**options, "rebalance_without_poll": "never"}


@pytest.fixture
def both(topic: str) -> Partitions:
    return frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})


def member(
    topic: str, group: str, listener: ConsumerRebalanceListener, options: dict[str, Any]
) -> AsyncKafkaConsumer:
    consumer = AsyncKafkaConsumer(group_id=group, **options)
    consumer.subscribe([topic], listener=listener)
    return consumer


@pytest.mark.parametrize("make", [Recorder, AsyncRecorder])
async def test_callbacks_from_start_to_stop(
    topic: str, group: str, options: dict[str, Any], both: Partitions, make: Any
) -> None:
    """aiokafka 0.14 never calls "revoked" when it stops."""
    listener = make()
    async with member(topic, group, listener, options) as consumer:
        assert listener.calls == [("assigned", both)]
        await consumer.poll()
    assert listener.calls == [("assigned", both), ("revoked", both)]
    if isinstance(listener, AsyncRecorder):
        assert len(listener.tasks) == 2, "that of the consumer, and that which leaves the block"
        assert anyio.get_current_task().id in listener.tasks


async def test_a_rebalance_of_two_members(
    topic: str, group: str, options: dict[str, Any], both: Partitions
) -> None:
    options |= CLASSIC
    one, two = AsyncRecorder(), Recorder()
    async with (
        member(topic, group, one, options) as first,
        anyio.create_task_group() as tasks,
    ):

        async def run_second() -> None:
            async with member(topic, group, two, options) as second:
                await apoll_until(second, lambda: len(first.assignment()) == 1)

        tasks.start_soon(run_second)
        await apoll_until(first, lambda: one.names.count("assigned") == 2)
    assert one.calls[:2] == [("assigned", both), ("revoked", both)]
    ((_, kept), (_, given)) = one.calls[2], two.calls[0]
    assert kept | given == both
    assert len(kept) == len(given) == 1


@pytest.mark.parametrize("make", [Recorder, AsyncRecorder])
async def test_lost_when_thrown_out(
    cluster: Cluster,
    topic: str,
    group: str,
    polled_only: dict[str, Any],
    both: Partitions,
    make: Any,
) -> None:
    listener = make()
    async with member(topic, group, listener, polled_only) as consumer:
        evict(cluster, group)
        await apoll_until(consumer, lambda: listener.names.count("assigned") == 2)
        assert listener.calls == [("assigned", both), ("lost", both), ("assigned", both)]
        evict(cluster, group)
        await cluster.wait_until_async(lambda: consumer.group_metadata().generation_id < 0)
    assert listener.calls[3:] == [("lost", both)]


async def test_heartbeats_go_on_while_a_listener_waits(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    def beats() -> int:
        return sum(request.api == "Heartbeat" for request in cluster.requests)

    async def assigned(partitions: Partitions) -> None:
        before = beats()
        await cluster.wait_until_async(lambda: beats() > before + 64)

    options |= {**CLASSIC, "session_timeout_ms": 3000}  # 64 heartbeats of 50 ms take longer
    listener = AsyncRecorder(assigned=assigned)
    async with member(topic, group, listener, options) as consumer:
        await consumer.poll()
        assert cluster.group(group).generation == 1
    assert listener.names == ["assigned", "revoked"]


async def test_an_exception_comes_out_of_getmany_once(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], both: Partitions
) -> None:
    """aiokafka 0.14 drops the exception."""
    cluster.produce(topic, [b"a"], partition=0)
    problem = ZeroDivisionError("in the listener")

    async def fail(partitions: Partitions) -> None:
        raise problem

    listener = AsyncRecorder(assigned=fail)
    consumer = member(topic, group, listener, options)
    async with consumer:
        with pytest.raises(RebalanceListenerError) as raised:
            await anext(consumer)
        assert raised.value.callback == "on_partitions_assigned"
        assert raised.value.partitions == both
        assert raised.value.__cause__ is problem
        assert (await anext(consumer)).value == b"a"
        listener.hooks = {"revoked": fail}
        with pytest.raises(RebalanceListenerError, match="on_partitions_revoked"):
            await consumer.close()
    assert not cluster.group(group).members


async def test_callbacks_may_not_poll(topic: str, group: str, options: dict[str, Any]) -> None:
    refused: list[str] = []

    async def poll(partitions: Partitions) -> None:
        for call in (consumer.poll, consumer.__anext__):
            with pytest.raises(ReentrantCallError) as raised:
                await call()
            refused.append(str(raised.value).split()[0])
        with pytest.raises(ReentrantCallError):
            await consumer.unsubscribe()

    consumer = member(topic, group, AsyncRecorder(assigned=poll), options)
    async with consumer:
        await consumer.poll()
    assert refused == ["poll()", "iteration"]


@pytest.mark.parametrize("call", ["poll", "__anext__", "close"])
async def test_stop_in_a_listener_is_done_when_it_has_returned(
    cluster: Cluster, topic: str, group: str, polled_only: dict[str, Any], call: str
) -> None:
    async def stop(partitions: Partitions) -> None:
        await consumer.close()
        assert await consumer.committed(TopicPartition(topic, 0)) is None  # the consumer works

    listener = AsyncRecorder(revoked=stop, lost=stop)
    consumer = member(topic, group, listener, polled_only)
    async with consumer:
        evict(cluster, group)
        await cluster.wait_until_async(lambda: consumer.group_metadata().generation_id < 0)
        with anyio.fail_after(PATIENCE):
            while not consumer._driver.life.is_closed:
                try:
                    assert not await getattr(consumer, call)()
                except (ConsumerClosedError, StopAsyncIteration):
                    break
        assert consumer._driver.life.is_closed
    assert listener.names == ["assigned", "lost"]


async def test_stop_in_the_first_callback_of_all(
    topic: str, group: str, options: dict[str, Any]
) -> None:
    async def stop(partitions: Partitions) -> None:
        await consumer.close()

    listener = AsyncRecorder(assigned=stop)
    consumer = member(topic, group, listener, options)
    async with consumer:
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()
    assert listener.names == ["assigned", "revoked"]


async def test_a_cancelled_getmany_leaves_the_callback_to_the_next_one(
    cluster: Cluster, topic: str, group: str, polled_only: dict[str, Any], both: Partitions
) -> None:
    listener = AsyncRecorder()
    async with member(topic, group, listener, polled_only) as consumer:
        evict(cluster, group)
        await cluster.wait_until_async(lambda: consumer._driver.engine.callback_queue.pending)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await consumer.poll(timeout_ms=10_000)
        assert listener.names == ["assigned"]
        await apoll_until(consumer, lambda: listener.names.count("assigned") == 2)
        assert listener.names == ["assigned", "lost", "assigned"]


async def test_a_callback_that_is_cancelled_has_had_its_turn(
    cluster: Cluster, topic: str, group: str, polled_only: dict[str, Any], both: Partitions
) -> None:
    async def wait(partitions: Partitions) -> None:
        scope.cancel()
        await anyio.sleep(0.1)
        ended.append(partitions)

    ended: list[Partitions] = []
    listener = AsyncRecorder(lost=wait)
    async with member(topic, group, listener, polled_only) as consumer:
        evict(cluster, group)
        with anyio.CancelScope() as scope:
            await consumer.poll(timeout_ms=PATIENCE * 1000)
        assert scope.cancelled_caught
        await apoll_until(consumer, lambda: listener.names.count("assigned") == 2)
        assert ended == [both]
        assert listener.names == ["assigned", "lost", "assigned"]
