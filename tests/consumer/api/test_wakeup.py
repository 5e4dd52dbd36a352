"""Calls of wakeup() from other threads and signal handlers: they end waits and lose no record."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import WakeupError
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import PATIENCE, Recorder, aread, poll_until, read, values

LONG_MS = 1000 * PATIENCE


def once_waiting(consumer: Any, action: Any) -> threading.Thread:
    """Call ``action`` in a new thread as soon as the consumer is inside poll()."""

    def run() -> None:
        deadline = time.monotonic() + PATIENCE
        while not consumer._driver.engine.callback_queue.is_polling and time.monotonic() < deadline:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_another_thread_ends_poll(topic: str, group: str, make: MakeConsumer) -> None:
    consumer = make(topic, group_id=group)
    poll_until(consumer, consumer.assignment)
    thread = once_waiting(consumer, consumer.wakeup)
    begun = time.monotonic()
    with pytest.raises(WakeupError):
        consumer.poll(timeout_ms=LONG_MS)
    assert time.monotonic() - begun < PATIENCE / 2
    thread.join()
    assert consumer.poll() == {}, "wakeup() is raised once"


def test_a_signal_handler_ends_poll(topic: str, make: MakeConsumer) -> None:
    consumer = make(topic)
    poll_until(consumer, consumer.assignment)
    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
    thread = once_waiting(consumer, lambda: signal.pthread_kill(main, signal.SIGUSR1))
    try:
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=LONG_MS)
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


def test_iteration_ends_between_two_records(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    consumer = make(topic)
    seen: list[Any] = []
    for _ in range(3):
        with pytest.raises(WakeupError):
            for record in consumer:
                seen.append(record.value)
                if len(seen) % 3 == 0:
                    consumer.wakeup()
    assert seen == [b"%d" % n for n in range(9)]
    assert consumer.position(TopicPartition(topic, 0)) == 9


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


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["poll", "iteration"])
async def test_another_thread_ends_what_waits_on_the_async_face(
    how: str, cluster: Cluster, topic: str, options: dict[str, Any]
) -> None:
    async with AsyncKafkaConsumer(topic, **options) as consumer:
        thread = once_waiting(consumer, consumer.wakeup)
        with anyio.fail_after(PATIENCE), pytest.raises(WakeupError):
            if how == "poll":
                await consumer.poll(timeout_ms=LONG_MS)
            else:
                async for _ in consumer:
                    pass
        thread.join()
        cluster.produce(topic, [b"a"])
        assert values(await aread(consumer, 1)) == [b"a"]
    consumer.wakeup()


@pytest.mark.anyio
async def test_a_signal_handler_ends_what_waits_on_the_async_face(
    topic: str, options: dict[str, Any]
) -> None:
    main = threading.get_ident()
    async with AsyncKafkaConsumer(topic, **options) as consumer:
        before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
        thread = once_waiting(consumer, lambda: signal.pthread_kill(main, signal.SIGUSR1))
        try:
            with anyio.fail_after(PATIENCE), pytest.raises(WakeupError):
                await consumer.poll(timeout_ms=LONG_MS)
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.anyio
async def test_iteration_of_what_is_there_ends_on_the_async_face(
    cluster: Cluster, topic: str, options: dict[str, Any]
) -> None:
    cluster.produce(topic, [b"a", b"b", b"c"], partition=0)
    seen: list[Any] = []
    async with AsyncKafkaConsumer(topic, **options) as consumer:
        with pytest.raises(WakeupError):
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 2:
                    consumer.wakeup()
        assert seen == [b"a", b"b"]
        assert (await anext(consumer)).value == b"c"


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
