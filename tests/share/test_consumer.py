"""Async share consumers on the in-process cluster, on a virtual clock: locks, faults, closing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from kohort import AsyncShareConsumer, ShareRecord, TopicPartition
from kohort.errors import (
    ConsumerClosedError,
    IllegalStateError,
    InvalidOptionError,
    KafkaConnectionError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    RecordDeserializationError,
    TlsError,
    UnsupportedOptionError,
    WakeupError,
)
from kohort.testing import MemoryCluster
from tests.support.virtual import run_virtual_on

TOPIC = "jobs"
TP = TopicPartition(TOPIC, 0)
LOCK = 30.0
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def consumer(cluster: MemoryCluster, **options: Any) -> AsyncShareConsumer:
    """Return a member of the group ``workers``, with explicit acknowledgement."""
    return AsyncShareConsumer(
        TOPIC,
        **{
            "bootstrap_servers": cluster.bootstrap_servers,
            "connect": cluster.connect,
            "group_id": "workers",
            "start": "earliest",
            "acknowledgement": "explicit",
            "retry_backoff_ms": 10,
            **options,
        },
    )


def flat(found: dict[TopicPartition, list[Any]]) -> list[ShareRecord[Any, Any]]:
    return [record for records in found.values() for record in records]


def answering(*answers: str | Exception) -> Callable[[Exception], str]:
    """Return a function for ``on_error`` that gives or raises one answer after the other."""
    left = iter(answers)

    def on_error(_: Exception) -> str:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return on_error


async def poll(member: AsyncShareConsumer, count: int) -> list[ShareRecord[Any, Any]]:
    """Poll until ``count`` records have come."""
    found: list[ShareRecord[Any, Any]] = []
    with anyio.fail_after(600):
        while len(found) < count:
            found += flat(await member.poll(timeout_ms=1_000))
    return found


def seen(records: list[ShareRecord[Any, Any]]) -> list[tuple[Any, int]]:
    return [(record.value, record.delivery_count) for record in records]


def on_cluster(
    backend: str, scene: Callable[[MemoryCluster], Awaitable[None]], **options: Any
) -> None:
    """Run a scene with a cluster of one partition."""

    async def main() -> None:
        async with MemoryCluster(**{"topics": {TOPIC: 1}, "brokers": 1, **options}) as cluster:
            await scene(cluster)

    run_virtual_on(backend, main)


@BACKENDS
def test_each_acknowledgement_has_its_effect(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b", "c", "d"])
        async with consumer(cluster) as member:
            accepted, released, rejected, renewed = await poll(member, 4)
            assert renewed.lock_deadline - anyio.current_time() == pytest.approx(LOCK, abs=2)
            member.accept(accepted)
            member.release(released)
            member.reject(rejected)
            await anyio.sleep(5)
            member.renew(renewed)
            assert await member.commit() == {}
            assert renewed.lock_deadline - anyio.current_time() == pytest.approx(LOCK, abs=1)
            with pytest.raises(IllegalStateError, match="acknowledged already"):
                member.release(accepted)
            (again,) = await poll(member, 1)
            assert seen([again]) == [(b"b", 2)]
            member.acknowledge(TP, renewed.offset)
            member.accept(again)
            assert await member.commit() == {}
            assert member.held() == 0
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_close_releases_locks_of_partitions_it_lost(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"], partition=0)
        cluster.produce(TOPIC, ["c", "d"], partition=1)
        async with consumer(cluster) as member:
            records = await poll(member, 4)
            member.accept(records[0])
            async with consumer(cluster) as other:
                while len(member.assignment()) > 1 or not other.assignment():
                    await member.poll(timeout_ms=500)
                    await other.poll(timeout_ms=500)
                # Its session forgets one partition, and the other member has it.
                await member.poll(timeout_ms=500)
                assert await other.poll(timeout_ms=500) == {}
                await member.close()
                locked = {
                    partition: [each.state for each in state.records.values()]
                    for partition, state in cluster.share_state("workers").items()
                }
                free = ["available", "available"]
                assert locked == {TP: free[1:], TopicPartition(TOPIC, 1): free}
                assert len(await poll(other, 3)) == 3

    on_cluster(backend, scene, topics={TOPIC: 2})


@BACKENDS
def test_a_late_accept_is_named_and_the_record_comes_again(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member, consumer(cluster) as other:
            late, kept = await poll(member, 2)
            await anyio.sleep(LOCK * 0.9)
            member.renew(kept)
            assert await member.commit() == {}
            await anyio.sleep(LOCK * 0.2)
            member.accept(late, kept)
            failed = await member.commit()
            assert list(failed) == [TP]
            assert list(failed[TP]) == [late.offset]
            assert isinstance(failed[TP][late.offset], KafkaTimeoutError)
            assert await member.commit() == {}
            (again,) = await poll(other, 1)
            assert seen([again]) == [(b"a", 2)]
            other.accept(again)
            assert await other.commit() == {}
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_a_long_wait_of_fetches_costs_no_delivery(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async def produce() -> None:
            await anyio.sleep(LOCK * 0.7)
            cluster.produce(TOPIC, ["a"])

        async with consumer(cluster, fetch_max_wait_ms=25_000) as member:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                assert seen(flat(await member.poll(timeout_ms=60_000))) == [(b"a", 1)]

    on_cluster(backend, scene)


async def drain(
    member: AsyncShareConsumer, taken: list[int], total: int, *, seconds: float = 0.0
) -> list[int]:
    """Accept records, ``seconds`` for each, until members have taken all. Return the poll sizes."""
    sizes = []
    while sum(taken) < total:
        found = flat(await member.poll(timeout_ms=100))
        if found:
            sizes.append(len(found))
            taken.append(len(found))
            await anyio.sleep(seconds * len(found))
            member.accept(*found)
    return sizes


def produce_singly(cluster: MemoryCluster, count: int) -> None:
    """Produce batches of one record, so that brokers can keep any limit."""
    for number in range(count):
        cluster.produce(TOPIC, [str(number)])


@BACKENDS
@pytest.mark.parametrize(
    ("seconds", "mode", "largest"),
    [
        (0.0, "batch_optimized", 30),
        (0.00049, "batch_optimized", 20),
        (0.01, "batch_optimized", 10),
        (0.0, "record_limit", 10),
    ],
)
def test_a_quick_caller_gets_more_than_the_soft_limit(
    backend: str, seconds: float, mode: Any, largest: int
) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        produce_singly(cluster, 200)
        async with consumer(cluster, max_poll_records=10, acquire_mode=mode) as member:
            sizes = await drain(member, [], 200, seconds=seconds)
        assert sizes[0] == 10
        assert max(sizes) == largest

    on_cluster(backend, scene)


@BACKENDS
def test_a_caller_with_unfinished_records_gets_the_soft_limit(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        produce_singly(cluster, 100)
        async with consumer(cluster, max_poll_records=10) as member:
            sizes = [len(flat(await member.poll(timeout_ms=1_000))) for _ in range(20)]
            assert max(sizes) == 10

    on_cluster(backend, scene)


@BACKENDS
def test_a_quick_caller_gets_no_more_from_several_brokers(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        produce_singly(cluster, 600)
        async with consumer(cluster, max_poll_records=10) as member:
            assert max(await drain(member, [], 600)) <= 30

    on_cluster(backend, scene, topics={TOPIC: 3}, brokers=3)


@BACKENDS
def test_a_quick_member_leaves_room_for_another_one(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        produce_singly(cluster, 2_000)
        taken: list[int] = []
        found: list[int] = []

        async def work() -> None:
            async with consumer(cluster, max_poll_records=25) as member:
                found.append(sum(await drain(member, taken, 2_000, seconds=0.0001)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(work)
        assert min(found) > 500

    configs = {"group.share.partition.max.record.locks": 100}
    on_cluster(backend, scene, configs=configs)


@BACKENDS
def test_a_slow_member_gets_no_large_batch_of_a_quick_one(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        produce_singly(cluster, 200)
        async with consumer(cluster, max_poll_records=10) as quick:
            await drain(quick, [], 60)
            records = flat(await quick.poll(timeout_ms=1_000))
            assert len(records) == 30
            quick.release(*records)
            assert await quick.commit() == {}
            async with consumer(cluster, max_poll_records=10) as slow:
                assert await drain(slow, [], 50, seconds=1.0) == [10] * 5

    on_cluster(backend, scene)


@BACKENDS
def test_the_first_fetch_waits_for_a_share_of_the_shortest_lock(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        waits = []

        async def note(call: Any) -> None:
            waits.append(call.message.max_wait_ms)

        async def produce() -> None:
            await anyio.sleep(6)
            cluster.produce(TOPIC, ["a"])

        cluster.on("ShareFetch", note)
        async with consumer(cluster, fetch_max_wait_ms=25_000) as member:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                (record,) = flat(await member.poll(timeout_ms=60_000))
                assert record.delivery_count == 1
                assert record.lock_deadline - anyio.current_time() == pytest.approx(2, abs=0.5)
        assert waits[:2] == [250, 500]

    configs = {"group.share.min.record.lock.duration.ms": 1000}
    on_cluster(backend, scene, share_lock_ms=2_000, configs=configs)


@BACKENDS
def test_marks_are_sent_without_a_call_after_a_third_of_the_lock(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            member.accept(record)
            await anyio.sleep(LOCK * 0.6)
            assert member.held() == 0
            with pytest.raises(IllegalStateError, match="acknowledged already"):
                member.release(record)

    on_cluster(backend, scene)


@BACKENDS
@pytest.mark.parametrize("share", [0.3, 0.55, 0.7, 0.85, 0.99])
@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_late_mark_is_sent_without_a_call(backend: str, share: float, is_renewed: bool) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            first, _ = await poll(member, 2)
            if is_renewed:
                await anyio.sleep(LOCK / 2)
                member.renew(first)
                assert await member.commit() == {}
            await anyio.sleep(first.lock_deadline - LOCK * (1 - share) - anyio.current_time())
            member.accept(first)
            await anyio.sleep(LOCK * (1 - share) - 0.01)
            assert member.held() == 1  # the other record has no mark
            await anyio.sleep(LOCK)
            assert await member.commit() == {}

    on_cluster(backend, scene)


@BACKENDS
def test_a_commit_beside_the_caller_names_what_failed(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            with pytest.raises(IllegalStateError, match="poll"):
                member.commit_async()
            first, late = await poll(member, 2)
            called: list[Any] = []
            member.accept(first)
            future = member.commit_async(lambda *result: called.append(result))
            await future
            assert called == []  # a later call runs it
            await anyio.sleep(LOCK + 1)
            member.accept(late)
            assert called == []
            await member.commit_async(lambda *result: called.append(result))
            assert await member.commit() == {}
            (none, _), (failed, error) = called
            assert none == {}
            assert list(failed[TP]) == [late.offset]
            assert error is None

    on_cluster(backend, scene)


@BACKENDS
def test_closed_consumer_refuses_each_mark(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b", "c"])
        async with consumer(cluster) as member:
            first, second, last = await poll(member, 3)
            member.accept(first)
            member.accept(second)
        for marks in (member.accept, member.release, member.accept):
            with pytest.raises(ConsumerClosedError):
                marks(last)

    on_cluster(backend, scene)


@BACKENDS
def test_the_next_poll_accepts_and_close_releases(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster, acknowledgement="implicit") as member:
            assert seen(await poll(member, 1)) == [(b"a", 1)]
            cluster.produce(TOPIC, ["b"])
            assert seen(await poll(member, 1)) == [(b"b", 1)]
        async with consumer(cluster, acknowledgement="implicit") as member:
            assert seen(await poll(member, 1)) == [(b"b", 2)]
            assert await member.commit() == {}
        async with consumer(cluster) as member:
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_an_exception_in_an_iteration_releases_its_record(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b", "c"])
        done: list[Any] = []
        with pytest.raises(ZeroDivisionError):
            async with consumer(cluster, acknowledgement="implicit") as member:
                async for record in member:
                    if record.value == b"b":
                        raise ZeroDivisionError
                    done.append(record.value)
        assert done == [b"a"]
        async with consumer(cluster, acknowledgement="implicit") as member:
            with pytest.raises(ZeroDivisionError):
                async for _ in member:
                    raise ZeroDivisionError
            again: list[Any] = []
            async for record in member:
                again += seen([record])
                if len(again) == 2:
                    assert await member.commit() == {}
                    break
        # The first loop has released b, and the rest of its poll went on.
        assert sorted(again) == [(b"b", 3), (b"c", 2)]

    on_cluster(backend, scene)


@BACKENDS
def test_a_lost_connection_loses_the_locks_and_heals(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            first, second = await poll(member, 2)
            cluster.disconnect(times=1)
            member.accept(first)
            failed = await member.commit()
            assert list(failed[TP]) == [first.offset]
            member.accept(second)
            failed = await member.commit()
            assert isinstance(failed[TP][second.offset], KafkaConnectionError)
            records = await poll(member, 2)
            assert [record.value for record in records] == [b"a", b"b"]
            member.accept(*records)
            assert await member.commit() == {}
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_a_buffered_fetch_is_released_before_it_is_late(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster) as member:
            assert await member.poll(timeout_ms=6_000) == {}  # a fetch is parked now
            assert await member.poll(timeout_ms=1) == {}
            cluster.produce(TOPIC, ["a"])
            await anyio.sleep(LOCK * 0.9)
            async with consumer(cluster) as other:
                assert [record.value for record in await poll(other, 1)] == [b"a"]

    on_cluster(backend, scene)


@BACKENDS
def test_records_that_cannot_be_read_end_by_themselves(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["1", "{", "3"])
        async with consumer(cluster, value_deserializer=json.loads) as member:
            records = await poll(member, 2)
            assert [record.value for record in records] == [1, 3]
            member.accept(*records)
            assert await member.commit() == {}
            assert member.held() == 0
        cluster.produce(TOPIC, ["["])
        options = {"value_deserializer": json.loads, "on_error": "raise"}
        async with consumer(cluster, **options) as member:
            for _ in range(5):  # the limit of deliveries
                with pytest.raises(RecordDeserializationError, match="it comes again"):
                    await poll(member, 1)
            assert await member.poll(timeout_ms=60_000) == {}

    on_cluster(backend, scene)


@BACKENDS
def test_an_on_error_that_raises_is_asked_again_and_keeps_no_lock(backend: str) -> None:
    on_error = answering(OSError("no disk"), "later", "reject")

    async def scene(cluster: MemoryCluster) -> None:
        for value in ("1", "{", "3"):
            cluster.produce(TOPIC, [value])
        async with consumer(cluster, value_deserializer=json.loads, on_error=on_error) as member:
            with pytest.raises(OSError, match="no disk"):
                await poll(member, 1)
            with pytest.raises(ValueError, match="on_error returned 'later'"):
                await poll(member, 1)
            records = await poll(member, 2)
            assert [(each.value, each.delivery_count) for each in records] == [(1, 1), (3, 1)]
            member.accept(*records)
            assert await member.commit() == {}
            assert member.held() == 0

    on_cluster(backend, scene)


@BACKENDS
def test_two_members_share_one_partition(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, [str(number) for number in range(10)])
        options = {"max_poll_records": 3, "acquire_mode": "record_limit"}
        async with consumer(cluster, **options) as one, consumer(cluster, **options) as other:
            records = await poll(one, 3) + await poll(other, 3)
            assert len(records) == 6  # the limit is exact
            assert len({record.offset for record in records}) == 6
            assert one.assignment() == other.assignment() == {TP}

    on_cluster(backend, scene)


@BACKENDS
def test_a_member_reads_partitions_of_several_leaders(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        for partition in range(6):
            cluster.produce(TOPIC, ["x"], partition=partition)
        async with consumer(cluster) as member:
            records = await poll(member, 6)
            assert sorted(record.partition for record in records) == list(range(6))
            member.accept(*records)
            assert await member.commit() == {}
            assert member.held() == 0

    on_cluster(backend, scene, topics={TOPIC: 6}, brokers=3)


def test_options_without_a_meaning_are_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedOptionError, match=r"share\.auto\.offset\.reset"):
        AsyncShareConsumer(TOPIC, group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]
    with pytest.raises(UnsupportedOptionError, match="leave it out"):
        AsyncShareConsumer(TOPIC, group_id="g", fetch_pace_ms=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidOptionError, match="needs a group"):
        AsyncShareConsumer(TOPIC)
    with pytest.raises(InvalidOptionError, match="acknowledgement='auto'"):
        AsyncShareConsumer(TOPIC, group_id="g", acknowledgement="auto")  # type: ignore[arg-type]


@BACKENDS
def test_polls_without_a_timeout_return_records_later(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster) as member:
            assert await member.poll() == {}
            found: list[ShareRecord[Any, Any]] = []
            with anyio.fail_after(60):
                while not found:
                    await anyio.sleep(1)
                    found = flat(await member.poll())
            assert seen(found) == [(b"a", 1), (b"b", 1)]
            await anyio.sleep(LOCK)  # nothing is fetched again without a poll
            requests = len(cluster.requests)
            await anyio.sleep(LOCK)
            assert not [each for each in cluster.requests[requests:] if each.api == "ShareFetch"]

    on_cluster(backend, scene)


class Gate:
    """Connections to a cluster, which fail with ``error`` while it is set."""

    def __init__(self, cluster: MemoryCluster, error: Exception | None) -> None:
        self._cluster, self.error = cluster, error

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error
        return await self._cluster.connect(*args, **kwargs)


DOWN = ConnectionRefusedError("down")
REFUSED = TlsError("the certificate is not trusted")


def test_polls_end_in_time_before_the_first_contact() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        gate = Gate(cluster, DOWN)
        cluster.produce(TOPIC, ["a"])
        member = consumer(cluster, connect=gate.connect, bootstrap_timeout_ms=10_000)
        began = anyio.current_time()
        assert await member.poll(timeout_ms=500) == {}
        assert anyio.current_time() - began == pytest.approx(0.5, abs=0.1)
        await member.commit_async()
        assert await member.commit() == {}
        assert anyio.current_time() - began == pytest.approx(0.5, abs=0.1)
        await anyio.sleep(12)
        assert "NoBrokersAvailable" in str(member.explain())
        gate.error = None
        await anyio.sleep(5)
        assert "NoBrokersAvailable" not in str(member.explain())
        assert seen(await poll(member, 1)) == [(b"a", 1)]
        await member.close()

    on_cluster("asyncio", scene)


@pytest.mark.parametrize(("error", "seconds"), [(DOWN, 10), (REFUSED, 0)])
def test_a_poll_raises_each_error_before_the_first_contact_once(
    error: Exception, seconds: float
) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        gate = Gate(cluster, error)
        cluster.produce(TOPIC, ["a"])
        member = consumer(cluster, connect=gate.connect, bootstrap_timeout_ms=10_000)
        began = anyio.current_time()
        with pytest.raises(NoBrokersAvailable if error is DOWN else TlsError):
            await member.poll(timeout_ms=300_000)
        assert anyio.current_time() - began == pytest.approx(seconds, abs=0.5)
        assert await member.poll(timeout_ms=5_000) == {}
        gate.error = None
        assert seen(await poll(member, 1)) == [(b"a", 1)]
        await member.close()

    on_cluster("asyncio", scene)


@pytest.mark.parametrize("error", [DOWN, REFUSED])
def test_wakeup_ends_a_poll_before_the_first_contact(error: Exception) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        gate = Gate(cluster, error)
        member = consumer(cluster, connect=gate.connect, bootstrap_timeout_ms=900_000)
        with suppress(TlsError):
            await member.poll(timeout_ms=500)
        began = anyio.current_time()
        asyncio.get_running_loop().call_later(1, member.wakeup)
        with pytest.raises(WakeupError):
            await member.poll(timeout_ms=300_000)
        assert anyio.current_time() - began == pytest.approx(1, abs=0.1)
        await member.close()
        assert anyio.current_time() - began < 2

    on_cluster("asyncio", scene)


@BACKENDS
@pytest.mark.parametrize("is_late", [False, True])
def test_a_refusal_after_the_first_contact_ends_a_poll(backend: str, is_late: bool) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        gate = Gate(cluster, None)
        async with consumer(cluster, connect=gate.connect, metadata_max_age_ms=5_000) as member:
            gate.error = REFUSED
            if is_late:  # it is reported before the first poll
                cluster.disconnect("Metadata", times=None)
                await anyio.sleep(60)
                assert "TlsError" in str(member.explain())
            began = anyio.current_time()
            with pytest.raises(TlsError):
                await member.poll(timeout_ms=60_000)
            assert anyio.current_time() - began < 5

    on_cluster(backend, scene)


def test_a_consumer_without_a_block_says_so_on_trio() -> None:
    async def scene(cluster: MemoryCluster) -> None:
        with pytest.raises(IllegalStateError, match="share consumer is not started") as caught:
            await consumer(cluster).poll(timeout_ms=1_000)
        assert "KafkaConsumer" not in str(caught.value)

    on_cluster("trio", scene)


@BACKENDS
@pytest.mark.parametrize("call", ["interrupt", "look"])
def test_calls_of_other_threads_run_in_the_event_loop(backend: str, call: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a"])
        async with consumer(cluster) as member:
            (record,) = await poll(member, 1)
            await anyio.sleep(0.8 * LOCK)
            client, called, errors = member._client, [], []
            assert client is not None
            function = getattr(client, call)

            def note() -> None:
                called.append(threading.current_thread())
                function()

            def run() -> None:
                try:
                    if call == "look":
                        member.accept(record)
                    else:
                        member.wakeup()
                except RuntimeError as error:
                    errors.append(error)

            setattr(client, call, note)
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            await anyio.sleep(1)
            assert not errors
            assert called == [threading.current_thread()]

    on_cluster(backend, scene)
