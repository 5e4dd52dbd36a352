"""The liveness of members: heartbeats, the session, and the interval between two polls."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from kohort.errors import CommitFailedError
from kohort.testing import MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import (
    HEARTBEATS,
    PROTOCOLS,
    MemoryConsumer,
    poll_for,
    polled,
    values,
)
from tests.support.virtual import run_virtual


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@PROTOCOLS
def test_unpolled_member_is_warned_leaves_and_gets_lost_callback(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a", "b"])
            consumer = MemoryConsumer(
                cluster,
                group_protocol=protocol,
                max_poll_interval_ms=60_000,
                enable_auto_commit=False,
            )
            listener = Recorder()
            consumer.subscribe(["t"], listener=listener)
            async with consumer:
                await values(consumer, 2)
                await anyio.sleep(47)
                assert _warnings(caplog) == []
                await anyio.sleep(2)
                (early,) = _warnings(caplog)
                assert "48.0 s" in early
                assert "max_poll_interval_ms (60000)" in early
                assert cluster.group("g").members
                await anyio.sleep(12)
                (_, left, *_) = _warnings(caplog)
                assert "60.0 s" in left
                assert not cluster.group("g").members, "others have its partitions by now"
                with pytest.raises(CommitFailedError, match="not a member"):
                    await consumer.commit()
                assert listener.names == ["assigned"], "callbacks wait for poll()"
                await poll_for(consumer, lambda: len(listener.names) == 3)
                assert listener.names == ["assigned", "lost", "assigned"]

    run_virtual(main)


@PROTOCOLS
def test_poll_warning_is_repeated_after_a_poll_in_time(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(
                cluster, "t", group_protocol=protocol, max_poll_interval_ms=60_000
            ) as consumer:
                generation = cluster.group("g").generation
                for _ in range(3):
                    await consumer.poll(timeout_ms=100)
                    await anyio.sleep(55)
                    assert cluster.group("g").generation == generation
            assert len(_warnings(caplog)) == 3

    run_virtual(main)


@PROTOCOLS
def test_a_long_poll_is_no_absence(caplog: pytest.LogCaptureFixture, protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(
                cluster, "t", group_protocol=protocol, max_poll_interval_ms=60_000
            ) as consumer:
                generation = cluster.group("g").generation
                await consumer.poll(timeout_ms=300_000)
                assert cluster.group("g").generation == generation
        assert _warnings(caplog) == []

    run_virtual(main)


@pytest.mark.parametrize("static", [False, True])
@PROTOCOLS
def test_unpolled_static_member_stays_until_its_session_expires(
    static: bool, protocol: str
) -> None:
    async def main() -> None:
        instance = "one" if static else None
        async with MemoryCluster(topics={"t": 2}) as cluster:
            consumer = MemoryConsumer(
                cluster,
                "t",
                group_protocol=protocol,
                max_poll_interval_ms=60_000,
                group_instance_id=instance,
            )
            async with consumer:
                await anyio.sleep(62)
                assert bool(cluster.group("g").members) == static
                await anyio.sleep(46)
                assert not cluster.group("g").members
                await poll_for(consumer, lambda: len(consumer.assignment()) == 2)

    run_virtual(main)


@PROTOCOLS
def test_silent_coordinator_is_looked_up_again_after_the_session(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with MemoryCluster(brokers=3, topics={"t": 2}) as cluster:
            listener = Recorder()
            consumer = MemoryConsumer(cluster, group_protocol=protocol, client_id="one")
            consumer.subscribe(["t"], listener=listener)
            async with consumer, polled(consumer):
                await cluster.wait_until(lambda: cluster.group("g").is_stable)
                old = cluster.coordinator("g")
                with cluster.hang(HEARTBEATS[protocol], node=old, client_id="one"):
                    moved: Any = await _elsewhere(cluster, old)
                    await cluster.wait_until(
                        lambda: any(
                            r.api == HEARTBEATS[protocol] and r.node_id == moved
                            for r in cluster.requests
                        ),
                        60,
                    )
                await anyio.sleep(10)
                assert cluster.group("g").is_stable
                assert listener.names == ["assigned"], "nothing was lost by it"
            assert any("is unavailable" in r.getMessage() for r in caplog.records)

    run_virtual(main)


async def _elsewhere(cluster: MemoryCluster, old: int) -> int:
    await anyio.sleep(10)
    return cluster.move_coordinator("g")


@PROTOCOLS
def test_single_heartbeats_that_are_lost_cost_nothing(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}, seed=4) as cluster:
            listener = Recorder()
            consumer = MemoryConsumer(cluster, group_protocol=protocol)
            consumer.subscribe(["t"], listener=listener)
            async with consumer, polled(consumer):
                generation = cluster.group("g").generation
                with cluster.disconnect(HEARTBEATS[protocol], times=None, chance=0.3):
                    await anyio.sleep(60)
                    with cluster.hang(HEARTBEATS[protocol], times=1):
                        await anyio.sleep(60)
                assert cluster.group("g").generation == generation
                assert listener.names == ["assigned"]

    run_virtual(main)


@PROTOCOLS
def test_member_cut_off_past_its_session_is_lost_and_rejoins(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            listener = Recorder()
            consumer = MemoryConsumer(cluster, group_protocol=protocol, client_id="one")
            consumer.subscribe(["t"], listener=listener)
            async with consumer, polled(consumer):
                with cluster.network_partition(client_id="one"):
                    await cluster.wait_until(lambda: not cluster.group("g").members, 60)
                await cluster.wait_until(lambda: len(listener.names) == 3, 60)
                assert listener.names == ["assigned", "lost", "assigned"]

    run_virtual(main)


@PROTOCOLS
def test_iteration_withholds_records_until_session_is_confirmed(protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b", "c"])
            # A commit would renew the session at the coordinator.
            async with MemoryConsumer(
                cluster, "t", group_protocol=protocol, enable_auto_commit=False
            ) as consumer:
                assert (await anext(consumer)).value == b"a"
                with cluster.hang(HEARTBEATS[protocol]):
                    await anyio.sleep(50)
                    assert not cluster.group("g").members, "others may have read the rest"
                    with anyio.move_on_after(1):
                        assert not await anext(consumer)
                    assert await consumer.poll(timeout_ms=1000) == {}
                    (reason,) = consumer.explain().reasons
                    assert "no heartbeat got a response for as long as a session lasts" in reason
                found = [(await anext(consumer)).value for _ in range(3)]
                assert found == [b"a", b"b", b"c"], "as nothing was committed"

    run_virtual(main)


@pytest.mark.parametrize("request_timeout_ms", [2_000, 10_000])
def test_find_coordinator_is_repeated_after_request_timeout_ms(request_timeout_ms: int) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster, "t", request_timeout_ms=request_timeout_ms)
            with cluster.hang("FindCoordinator") as fault:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(consumer.__aenter__)
                    await cluster.wait_until(lambda: fault.hits == 1)
                    begun = anyio.current_time()
                    await cluster.wait_until(lambda: fault.hits == 2, timeout=60)
                    took = anyio.current_time() - begun
                    tasks.cancel_scope.cancel()
            assert request_timeout_ms / 1000 <= took < request_timeout_ms / 1000 + 2

    run_virtual(main)
