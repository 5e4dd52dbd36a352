"""Members of consumer groups on the virtual clock: times, sessions, static members, errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode, KafkaError, UnreleasedInstanceIdError
from kohort.protocol import Response
from kohort.testing import Action, Call, MemoryCluster
from tests.consumer.kit import Recorder
from tests.consumer.virtual import MemoryConsumer, poll_for, polled, values
from tests.support.virtual import run_virtual

HEARTBEAT = "ConsumerGroupHeartbeat"
SESSION = 6.0


def play(
    script: Callable[[MemoryCluster], Awaitable[None]], *, seed: int = 0, **settings: int
) -> None:
    """Run a script on a new cluster with a session of 6 s and a heartbeat each second."""
    limits = {
        "consumer_session_timeout_ms": round(SESSION * 1000),
        "consumer_heartbeat_interval_ms": 1_000,
        "consumer_assignment_interval_ms": 0,
        **settings,
    }

    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}, group_settings=limits) as cluster:
            await script(cluster)

    run_virtual(main, seed=seed)


def member(cluster: MemoryCluster, **options: Any) -> MemoryConsumer:
    return MemoryConsumer(
        cluster,
        **{
            "group_protocol": "consumer",
            "consumer_session_timeout_ms": round(SESSION * 1000),
            **options,
        },
    )


@asynccontextmanager
async def joined(
    consumer: MemoryConsumer, listener: Recorder | None = None
) -> AsyncIterator[MemoryConsumer]:
    """Run a consumer that is polled all the time, from its first assignment on."""
    async with consumer:
        consumer.subscribe(["t"], listener=listener)
        async with polled(consumer):
            yield consumer


def shares(*consumers: MemoryConsumer) -> Callable[[], bool]:
    """Return a predicate that is true when the consumers share the four partitions evenly."""
    each = 4 // len(consumers)
    return lambda: [len(one.assignment()) for one in consumers] == [each] * len(consumers)


async def seconds_until(holds: Callable[[], object]) -> float:
    """Wait until the predicate holds and return the seconds that took."""
    begun = anyio.current_time()
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110  # an assignment has no event
            await anyio.sleep(0.005)
    return anyio.current_time() - begun


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("interval", [100, 1_000, 5_000])
def test_second_member_joins_within_an_interval(interval: int, seed: int) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster)) as one:
            await seconds_until(shares(one))
            await anyio.sleep(3.0 + seed * interval / 5_000)
            async with joined(member(cluster)) as two:
                taken = await seconds_until(shares(one, two))
        assert taken <= interval / 1000 + 0.25

    play(script, seed=seed, consumer_heartbeat_interval_ms=interval)


def test_four_members_at_once_settle_in_six_seconds_by_default() -> None:
    async def script(cluster: MemoryCluster) -> None:
        consumers = [member(cluster) for _ in range(4)]
        async with (
            joined(consumers[0]),
            joined(consumers[1]),
            joined(consumers[2]),
            joined(consumers[3]),
        ):
            assert await seconds_until(shares(*consumers)) <= 6.0

    play(
        script,
        consumer_session_timeout_ms=45_000,
        consumer_heartbeat_interval_ms=5_000,
        consumer_assignment_interval_ms=1_000,
    )


def test_clean_leave_hands_over_within_an_interval() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster)) as one:
            async with joined(member(cluster)) as two:
                await seconds_until(shares(one, two))
            assert await seconds_until(shares(one)) <= 1.1

    play(script)


def test_member_that_does_not_poll_leaves_and_loses() -> None:
    async def script(cluster: MemoryCluster) -> None:
        listener = Recorder()
        one = member(cluster, max_poll_interval_ms=3_000, rebalance_without_poll="never")
        async with one:
            one.subscribe(["t"], listener=listener)
            await poll_for(one, shares(one))
            await anyio.sleep(4.0)
            assert cluster.group("g").members == ()
            await poll_for(one, lambda: len(listener.names) == 3)
            assert listener.names == ["assigned", "lost", "assigned"]

    play(script)


@pytest.mark.parametrize("static", [True, False])
def test_static_member_that_returns_keeps_its_partitions(static: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        names = ["one", "two"] if static else [None, None]
        listener = Recorder()
        async with joined(member(cluster, group_instance_id=names[0]), listener) as one:
            async with joined(member(cluster, group_instance_id=names[1])) as two:
                await seconds_until(shares(one, two))
                owned = two.assignment()
            await anyio.sleep(2.0)
            calls = len(listener.names)
            async with joined(member(cluster, group_instance_id=names[1])) as again:
                await seconds_until(shares(one, again))
                assert not static or (again.assignment(), len(listener.names)) == (owned, calls)

    play(script)


@pytest.mark.parametrize("leave_group", [True, False])
def test_close_decides_whether_a_member_stays(leave_group: bool) -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = member(cluster)
        async with one:
            one.subscribe(["t"])
            await poll_for(one, shares(one))
            await one.close(leave_group=leave_group)
        assert len(cluster.group("g").members) == (0 if leave_group else 1)
        await anyio.sleep(SESSION + 0.1)
        assert cluster.group("g").members == ()

    play(script)


def test_crashed_static_member_rejoins_after_its_session() -> None:
    async def script(cluster: MemoryCluster) -> None:
        first = member(cluster, group_instance_id="one")
        async with first:
            first.subscribe(["t"])
            await poll_for(first, shares(first))
            await anyio.sleep(0.5)

            async def drop(call: Call) -> Response | Action | None:
                is_last = call.message.member_epoch < 0
                return Action.DROP if is_last else await call.proceed()

            fault = cluster.on(HEARTBEAT, drop)
        fault.stop()
        begun = anyio.current_time()
        async with member(cluster, group_instance_id="one") as second:
            second.subscribe(["t"])
            errors = await poll_for(second, shares(second))
            assert errors == []
            assert anyio.current_time() - begun <= SESSION + 1.5

    play(script)


def test_held_name_is_an_error_after_the_session_timeout() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster, group_instance_id="one")):
            await anyio.sleep(2.0)
            errors: list[KafkaError] = []
            async with member(cluster, group_instance_id="one") as second:
                second.subscribe(["t"])
                async with polled(second, errors):
                    await anyio.sleep(SESSION + 2.0)
                    assert [type(error) for error in errors] == [UnreleasedInstanceIdError]
                    await anyio.sleep(10.0)
                    assert len(errors) == 1

    play(script)


def test_nothing_is_returned_while_the_session_is_in_doubt() -> None:
    async def script(cluster: MemoryCluster) -> None:
        one = member(cluster, fetch_max_wait_ms=100)
        async with one:
            one.subscribe(["t"])
            await poll_for(one, shares(one))
            with cluster.hang(HEARTBEAT):
                await anyio.sleep(SESSION + 1.5)
                cluster.produce("t", ["late"], partition=0)
                assert await one.poll(timeout_ms=1_000) == {}
            found: list[Any] = []
            with anyio.fail_after(20):
                while not found:
                    found += (await one.poll(timeout_ms=500)).get(TopicPartition("t", 0), [])

    play(script)


def test_new_coordinator_costs_no_partitions() -> None:
    async def script(cluster: MemoryCluster) -> None:
        listener = Recorder()
        async with joined(member(cluster), listener) as one:
            await seconds_until(shares(one))
            for code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                cluster.fail(HEARTBEAT, code, times=3)
                await anyio.sleep(4.0)
            assert listener.names == ["assigned"]

    play(script)


@pytest.mark.parametrize("seed", range(5))
def test_lost_responses_are_repaired_during_a_rebalance(seed: int) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster)) as one:
            await seconds_until(shares(one))
            with cluster.disconnect(HEARTBEAT, after=True, times=None, chance=0.5):
                async with joined(member(cluster)) as two:
                    await seconds_until(shares(one, two))

    play(script, seed=seed)


def test_enforce_rebalance_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster)) as one:
            await seconds_until(shares(one))
            for _ in range(3):
                one.enforce_rebalance()
                await anyio.sleep(1.0)

    with caplog.at_level(logging.WARNING):
        play(script)
    assert len([each for each in caplog.messages if "enforce_rebalance" in each]) == 1


@pytest.mark.parametrize("topics", [("u",), ("t", "u")])
def test_changed_subscription_moves_partitions_without_a_rejoin(topics: tuple[str, ...]) -> None:
    async def script(cluster: MemoryCluster) -> None:
        cluster.create_topic("u", 2)
        listener = Recorder()
        async with joined(member(cluster), listener) as one:
            await seconds_until(shares(one))
            one.subscribe(list(topics), listener=listener)
            wanted = {TopicPartition("u", 0), TopicPartition("u", 1)}
            if "t" in topics:
                wanted |= {TopicPartition("t", number) for number in range(4)}
            taken = await seconds_until(lambda: one.assignment() == wanted)
            assert taken <= 1.5
            assert "lost" not in listener.names

    play(script)


def test_new_partitions_and_topics_are_assigned() -> None:
    async def script(cluster: MemoryCluster) -> None:
        async with joined(member(cluster)) as one:
            await seconds_until(shares(one))
            cluster.add_partitions("t", 6)
            await seconds_until(lambda: len(one.assignment()) == 6)

    play(script)


def test_recreated_topic_is_reassigned_and_read_from_its_start() -> None:
    async def script(cluster: MemoryCluster) -> None:
        listener = Recorder()
        one = member(cluster, metadata_max_age_ms=500)
        async with one:
            one.subscribe(["t"], listener=listener)
            cluster.produce("t", ["old"] * 3, partition=0)
            assert await values(one, 3) == [b"old"] * 3
            cluster.delete_topic("t")
            cluster.create_topic("t", 4)
            cluster.produce("t", ["new"] * 2, partition=0)
            assert await values(one, 2) == [b"new"] * 2
            # The coordinator assigns the new topic after the acknowledgement of the revocation.
            assert listener.names == ["assigned", "revoked", "assigned", "assigned"]
            await one.commit()
        assert cluster.committed("g")[TopicPartition("t", 0)].offset == 2

    play(script)


def test_unsubscribe_and_subscribe_join_again() -> None:
    async def script(cluster: MemoryCluster) -> None:
        listener = Recorder()
        one = member(cluster)
        async with one:
            one.subscribe(["t"], listener=listener)
            await poll_for(one, shares(one))
            await one.unsubscribe()
            assert cluster.group("g").members == ()
            one.subscribe(["t"], listener=listener)
            await poll_for(one, shares(one))
            assert listener.names == ["assigned", "revoked", "assigned"]

    play(script)
