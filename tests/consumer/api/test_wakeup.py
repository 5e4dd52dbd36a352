"""Calls of wakeup() from other threads and signal handlers: they end waits and lose no record."""

from __future__ import annotations

import signal
import threading
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import WakeupError
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import (
    PATIENCE,
    Recorder,
    apoll_until,
    aread,
    once_waiting,
    poll_until,
    read,
    values,
)
from tests.support.awaited import EACH_API

LONG_MS = 3000 * PATIENCE


@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("how", ["poll", "iteration"])
async def test_another_thread_ends_what_waits(
    how: str,
    cluster: Cluster,
    topic: str,
    group: str,
    options: dict[str, Any],
    consumer_class: Any,
) -> None:
    async with consumer_class(topic, group_id=group, **options) as consumer:
        await apoll_until(consumer, consumer.assignment)
        thread = once_waiting(consumer, consumer.wakeup)
        with anyio.fail_after(PATIENCE), pytest.raises(WakeupError):
            if how == "poll":
                await consumer.poll(timeout_ms=LONG_MS)
            else:
                async for _ in consumer:
                    pass
        thread.join()
        assert await consumer.poll() == {}, "wakeup() is raised once"
        cluster.produce(topic, [b"a"])
        assert values(await aread(consumer, 1)) == [b"a"]
    consumer.wakeup()


@pytest.mark.anyio
@EACH_API
async def test_a_signal_handler_ends_poll(
    topic: str, options: dict[str, Any], consumer_class: Any
) -> None:
    main = threading.get_ident()
    async with consumer_class(topic, **options) as consumer:
        await apoll_until(consumer, consumer.assignment)
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
        thread = once_waiting(consumer, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        try:
            with anyio.fail_after(PATIENCE), pytest.raises(WakeupError):
                await consumer.poll(timeout_ms=LONG_MS)
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)


def test_wakeup_without_a_waiting_poll_ends_only_the_next_poll(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"b"], partition=0)
    consumer = make(topic, max_poll_records=1)
    assert values(read(consumer, 1)) == [b"a"]
    consumer.wakeup()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll()
    assert values(read(consumer, 1)) == [b"b"]


@pytest.mark.anyio
@EACH_API
async def test_iteration_ends_between_two_records(
    cluster: Cluster, topic: str, options: dict[str, Any], consumer_class: Any
) -> None:
    cluster.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    seen: list[Any] = []
    async with consumer_class(topic, **options) as consumer:
        for _ in range(3):
            with pytest.raises(WakeupError):
                async for record in consumer:
                    seen.append(record.value)
                    if len(seen) % 3 == 0:
                        consumer.wakeup()
        assert seen == [b"%d" % n for n in range(9)]
        assert await consumer.position(TopicPartition(topic, 0)) == 9
        assert (await anext(consumer)).value == b"9"


def test_a_commit_that_waits_is_ended_but_closing_is_not(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    consumer = make(topic, group_id=group)
    read(consumer, 1)
    with cluster.hang("OffsetCommit") as fault:

        def wake() -> None:
            cluster.wait_until(lambda: fault.hits)
            consumer.wakeup()

        waker = threading.Thread(target=wake)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.commit()
        waker.join()
    consumer.wakeup()
    consumer.close()
    assert not cluster.group(group).members
    consumer.wakeup()


def test_a_listener_is_not_disturbed(topic: str, group: str, make: MakeConsumer) -> None:
    def assigned(_: Any) -> None:
        consumer.wakeup()
        positions.append(consumer.position(TopicPartition(topic, 0)))
        consumer.commit({TopicPartition(topic, 0): 0})

    positions: list[Any] = []
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Recorder(assigned=assigned))
    with pytest.raises(WakeupError):
        poll_until(consumer, lambda: False)
    assert positions == [0]
    assert consumer.committed(TopicPartition(topic, 0)) == 0


def test_it_may_be_called_before_anything(options: dict[str, Any]) -> None:
    KafkaConsumer("t", **options).wakeup()
    AsyncKafkaConsumer("t", **options).wakeup()


def test_assign_is_not_disturbed_and_the_next_poll_is_told(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    consumer = make(group_id=group)
    consumer.assign([TopicPartition(topic, 0)])
    read(consumer, 1)
    consumer.wakeup()
    consumer.assign([TopicPartition(topic, 1)])
    with pytest.raises(WakeupError):
        consumer.poll()
