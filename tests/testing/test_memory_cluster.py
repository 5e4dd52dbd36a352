"""The cluster in a test's event loop: no network, and no real waits on trio's virtual clock."""

from __future__ import annotations

import random
import time
from typing import Any

import anyio
import pytest
import trio

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.broker.network._memory import MemoryConnection, Stream
from kohort.errors import ErrorCode, IllegalStateError, KafkaTimeoutError, NoBrokersAvailable
from kohort.protocol import Response
from kohort.testing import Call, MemoryCluster
from tests.support.virtual import run_virtual
from tests.testing.memory_consumer import MemoryConsumer


async def read(consumer: AsyncKafkaConsumer, count: int, timeout: float = 30.0) -> list[bytes]:
    """Poll until this many records arrived. Return their values."""
    values: list[bytes] = []
    with anyio.fail_after(timeout):
        while len(values) < count:
            for part in (await consumer.poll(timeout_ms=1000)).values():
                values += [record.value or b"" for record in part]
    return values


@pytest.mark.anyio
async def test_a_consumer_reads_commits_and_goes_on() -> None:
    async with MemoryCluster(topics={"t": 2}) as cluster:
        cluster.produce("t", ["a", "b"])
        async with MemoryConsumer(cluster, "t") as consumer:
            assert sorted(await read(consumer, 2)) == [b"a", b"b"]
            await consumer.commit()
        assert cluster.group("g").state == "Empty"
        cluster.produce("t", ["c"])
        async with MemoryConsumer(cluster, "t") as consumer:
            assert await read(consumer, 1) == [b"c"]


@pytest.mark.anyio
async def test_brokers_die_and_requests_fail_as_on_any_cluster() -> None:
    async with MemoryCluster(brokers=3, topics={"t": 3}) as cluster:
        cluster.produce("t", ["a", "b", "c"])
        fault = cluster.fail("ConsumerGroupHeartbeat", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        async with MemoryConsumer(cluster, "t", reconnect_backoff_ms=10) as consumer:
            assert len(await read(consumer, 3)) == 3
            assert fault.hits == 1
            for node in (1, 2, 3):
                cluster.kill_broker(node)
                cluster.produce("t", ["x"] * 3)
                assert len(await read(consumer, 3)) == 3
                cluster.start_broker(node)


@pytest.mark.anyio
async def test_broker_restarts_before_the_cluster_has_begun_to_serve() -> None:
    async with MemoryCluster(brokers=3, topics={"t": 3}) as cluster:
        cluster.kill_broker(2)
        cluster.start_broker(2)
        cluster.produce("t", ["a", "b", "c"])
        for node in (1, 3):
            cluster.kill_broker(node)
        async with MemoryConsumer(cluster, "t", reconnect_backoff_ms=10) as consumer:
            assert len(await read(consumer, 3)) == 3


@pytest.mark.anyio
async def test_errors_in_its_block_arrive_as_themselves() -> None:
    with pytest.raises(ZeroDivisionError):
        async with MemoryCluster():
            raise ZeroDivisionError
    cluster = MemoryCluster()
    with pytest.raises(IllegalStateError, match="async with"):
        _ = cluster.topics
    async with cluster:
        with pytest.raises(IllegalStateError):
            await cluster.__aenter__()
        with pytest.raises(KafkaTimeoutError):
            await cluster.wait_until(lambda: False, timeout=0.01)


@pytest.mark.anyio
async def test_a_client_of_another_event_loop_is_told_so() -> None:
    async with MemoryCluster(topics={"t": 1}) as cluster:

        def elsewhere() -> None:
            with KafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                connect=cluster.connect,
                bootstrap_timeout_ms=2_000,
            ) as consumer:
                consumer.bootstrap()

        with pytest.raises(NoBrokersAvailable, match="use AsyncKafkaConsumer"):
            await anyio.to_thread.run_sync(elsewhere)


@pytest.mark.anyio
async def test_nobody_is_where_no_broker_is() -> None:
    async with MemoryCluster(brokers=2) as cluster:
        host, port = cluster.bootstrap_servers.split(",")[1].split(":")
        for where in (("127.0.0.1", int(port)), (host, 1)):
            with pytest.raises(ConnectionRefusedError):
                await cluster.connect(*where)
        cluster.kill_broker(2)
        with pytest.raises(ConnectionRefusedError):
            await cluster.connect(host, int(port))
        cluster.start_broker(2)
        connection = await cluster.connect(host, int(port))
        cluster.kill_broker(2)
        assert await connection.recv_into(memoryview(bytearray(1))) == 0


@pytest.mark.anyio
async def test_a_connection_brings_all_bytes_and_holds_back_its_writer() -> None:
    here, there = Stream(), Stream()
    one, two = MemoryConnection(here, there), MemoryConnection(there, here)
    data = random.Random(1).randbytes(3 << 20)
    got = bytearray()
    sent = anyio.Event()

    async def send() -> None:
        for start in range(0, len(data), 70_000):
            await one.send([data[start : start + 70_000]])
        sent.set()
        await one.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert not sent.is_set()
        view = memoryview(bytearray(50_000))
        while count := await two.recv_into(view):
            got += view[:count]
    assert got == data
    with pytest.raises(BrokenPipeError):
        await two.send([b"x"])
    with pytest.raises(anyio.ClosedResourceError):
        await one.recv_into(view)
    with pytest.raises(anyio.ClosedResourceError):
        await one.send([b"x"])


async def hours_of_a_group() -> list[object]:
    """Run members that join, stop responding and are replaced, over hours. Return all events."""
    seen: list[object] = []
    settings = {"max_session_timeout_ms": 3_600_000}
    slow: dict[str, Any] = {
        "session_timeout_ms": 1_800_000,
        "heartbeat_interval_ms": 300_000,
        "max_poll_interval_ms": 7_200_000,
        "fetch_max_wait_ms": 120_000,
        "request_timeout_ms": 7_300_000,
        "auto_commit_interval_ms": 300_000,
        "reconnect_backoff_max_ms": 120_000,
        "retry_backoff_max_ms": 120_000,
    }
    async with MemoryCluster(topics={"t": 4}, group_settings=settings, seed=3) as cluster:
        async with MemoryConsumer(cluster, "t", client_id="one", **slow) as one:
            for hour in range(2):
                await anyio.sleep(3600)
                cluster.produce("t", [f"{hour}"])
                seen.append(await read(one, 1, 7200))
                seen.append(cluster.group("g").generation)
            cut = cluster.network_partition(client_id="one")
            await cluster.wait_until(lambda: cluster.group("g").state == "Empty", 7200)
            cut.stop()
            await cluster.wait_until(lambda: cluster.records("t") != [])
        seen.append(round(anyio.current_time() / 3600))
        first = cluster.records("t")[0]
        seen.append((cluster.group("g").generation, first.timestamp))
        seen += sorted((tp.partition, at.offset) for tp, at in cluster.committed("g").items())
        seen += [(at.at, at.node_id, at.api, at.message) for at in cluster.requests]
    return seen


def test_hours_of_a_groups_life_pass_at_once_and_repeatably() -> None:
    started = time.thread_time()
    first = run_virtual(hours_of_a_group)
    assert first[:4] == [[b"0"], 1, [b"1"], 1]
    assert first[4] == 2
    assert time.thread_time() - started < 30
    assert run_virtual(hours_of_a_group) == first


class Steps(trio.abc.Instrument):
    """Count of the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: object) -> None:
        self.count += 1


def test_idle_members_wake_for_requests_and_little_else() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t") as one, MemoryConsumer(cluster, "t") as two:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(anext, one)
                    tasks.start_soon(anext, two)
                    await anyio.sleep(60)
                    steps, before = Steps(), len(cluster.requests)
                    trio.lowlevel.add_instrument(steps)
                    await anyio.sleep(360)
                    trio.lowlevel.remove_instrument(steps)
                    requests = len(cluster.requests) - before
                    tasks.cancel_scope.cancel()
        assert 100 < requests < 250  # fetches every ten seconds, and heartbeats
        assert steps.count < 8.5 * requests  # twice as many with a wake-up for each change

    run_virtual(main)


def test_member_that_stops_polling_is_dropped_after_interval() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", max_poll_interval_ms=300_000) as consumer:
                await consumer.poll(timeout_ms=1000)
                assert cluster.group("g").is_stable
                await anyio.sleep(290)
                assert cluster.group("g").is_stable
                await anyio.sleep(20)
                assert cluster.group("g").state == "Empty"
                cluster.produce("t", ["a"])
                assert await read(consumer, 1) == [b"a"]
                assert cluster.group("g").assignment != {}
                assert TopicPartition("t", 0) in consumer.assignment()

    run_virtual(main)


def test_records_are_withheld_while_the_session_may_have_expired() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            options = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}
            async with MemoryConsumer(cluster, "t", client_id="one", **options) as one:
                cluster.produce("t", ["a"])
                assert await read(one, 1) == [b"a"]

                async def conceal(call: Call) -> Response:
                    await call.proceed()  # the session continues, and the response is an error
                    return call.error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

                with cluster.on("Heartbeat", conceal):
                    await anyio.sleep(5)
                    cluster.produce("t", ["b"])
                    assert await read(one, 1) == [b"b"], "the session cannot be over yet"
                    await anyio.sleep(10)
                    cluster.produce("t", ["c"])
                    assert await one.poll(timeout_ms=20_000) == {}
                    assert one.highwater(TopicPartition("t", 0)) == 3, "it has been fetched"
                started = anyio.current_time()
                assert await read(one, 1) == [b"c"]
                assert anyio.current_time() - started < 5
                assert cluster.group("g").generation == 1

    run_virtual(main)
