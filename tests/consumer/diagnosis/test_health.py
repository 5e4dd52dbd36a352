"""health(): each rule of kohort/consumer/diagnosis/_health.py, as a fault with its answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
import trio

from kohort import AsyncKafkaConsumer, Health, KafkaConsumer, TopicPartition
from kohort.errors import (
    ErrorCode,
    ForkedConsumerError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    WakeupError,
)
from kohort.testing import MemoryCluster
from tests.consumer.both_apis import Driven, Stage, perform
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until
from tests.consumer.virtual import MemoryConsumer, polled
from tests.support.net import free_ports
from tests.support.virtual import run_virtual

APIS = pytest.mark.parametrize("api", ["sync", "async"])
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
HEALTHY = Health(True, True, ())
TP = TopicPartition("t", 0)
MAX_POLL_S = 10.0
"""Seconds without a poll that the consumers of these tests have. A short time costs less CPU."""

Script = Callable[[Stage], Awaitable[None]]


async def join(stage: Stage, *topics: str, **options: Any) -> Driven:
    """Return a member of stage.join() with the limit of these tests."""
    return await stage.join(*topics, **{"max_poll_interval_ms": 1000 * MAX_POLL_S, **options})


async def pass_seconds(member: Driven, seconds: float) -> None:
    """Let time pass without a poll. The sync API gets another clock for that."""
    if isinstance(member.consumer, AsyncKafkaConsumer):
        await anyio.sleep(seconds)
    else:
        queue = member.consumer._driver.engine.callback_queue
        clock = queue.clock
        queue.clock = lambda: clock() + seconds


def is_healthy(member: Driven) -> bool:
    return bool(member.consumer.health() == HEALTHY)


def reason(health: Health) -> str:
    """Return the one reason."""
    (found,) = health.reasons
    return found


# -- ready -----------------------------------------------------------------------------------------


@APIS
@PROTOCOLS
def test_ready_from_the_first_completed_assignment(api: str, protocol: str) -> None:
    async def script(stage: Stage) -> None:
        inside: list[Health] = []

        async def assigned(member: Driven, _: frozenset[TopicPartition]) -> None:
            inside.append(member.consumer.health())

        member = await join(stage, "t", group_protocol=protocol, assigned=assigned)
        before = member.consumer.health()
        assert before.live and not before.ready and before.reasons
        await stage.until(lambda: inside and is_healthy(member), member)
        assert inside[0].live and not inside[0].ready  # the listener has not returned yet

    perform(api, script, {"t": 2})


@APIS
@PROTOCOLS
def test_ready_with_an_empty_assignment(api: str, protocol: str) -> None:
    async def script(stage: Stage) -> None:
        members = [await join(stage, "t", group_protocol=protocol) for _ in range(2)]

        def shared() -> bool:
            """True once one owns the partition: none may while it moves."""
            owned = sorted(len(member.consumer.assignment()) for member in members)
            return owned == [0, 1] and all(map(is_healthy, members))

        await stage.until(shared, *members)

    perform(api, script, {"t": 1})


@APIS
def test_a_consumer_without_a_group_is_ready_with_its_partitions(api: str) -> None:
    async def script(stage: Stage) -> None:
        member = await join(stage, "t", group_id=None)
        await stage.until(lambda: is_healthy(member), member)
        assert member.consumer.assignment() == {TP}

    perform(api, script, {"t": 1})


@APIS
def test_assigned_partitions_are_ready_with_the_first_response(api: str) -> None:
    async def script(stage: Stage) -> None:
        with stage.cluster.hang():
            member = await _assigned(stage)
            await member.poll()
            health = member.consumer.health()
            assert health.live and not health.ready
            assert "no broker was reached yet" in reason(health)
        await stage.until(lambda: is_healthy(member), member)

    perform(api, script, {"t": 1})


async def _assigned(stage: Stage) -> Driven:
    """Return a member of no group with a partition of assign(), before any contact."""
    if isinstance(stage.cluster, MemoryCluster):
        # join() waits for the first contact of an async consumer
        consumer: Any = MemoryConsumer(stage.cluster)
        consumer.assign([TP])
        await consumer._driver.enter_block_without_wait()
        stage._stack.push_async_exit(consumer)
        return Driven(consumer, {})
    member = await join(stage, "t")
    await member.consumer.unsubscribe()
    member.consumer.assign([TP])
    return member


@APIS
def test_no_longer_ready_from_the_beginning_of_the_stop(api: str) -> None:
    async def script(stage: Stage) -> None:
        inside: list[Health] = []

        async def revoked(member: Driven, _: frozenset[TopicPartition]) -> None:
            inside.append(member.consumer.health())

        member = await join(stage, "t", revoked=revoked)
        await stage.until(lambda: is_healthy(member), member)
        await member.consumer.close()
        assert inside == [Health(True, False, ("the consumer is being closed",))]
        assert member.consumer.health() == Health(True, False, ("the consumer is closed",))

    perform(api, script, {"t": 1})


@APIS
def test_not_ready_without_a_subscription(api: str) -> None:
    async def script(stage: Stage) -> None:
        member = await join(stage, "t")
        await stage.until(lambda: is_healthy(member), member)
        await member.consumer.unsubscribe()
        health = member.consumer.health()
        assert health.live and not health.ready
        assert "nothing is subscribed to or assigned" in reason(health)
        await pass_seconds(member, 2 * MAX_POLL_S)  # and nothing has to be polled
        assert member.consumer.health().live

    perform(api, script, {"t": 1})


# -- live, though ----------------------------------------------------------------------------------


@APIS
@PROTOCOLS
def test_a_rebalance_of_a_minute_changes_nothing(api: str, protocol: str) -> None:
    async def script(stage: Stage) -> None:
        slow = {"heartbeat_interval_ms": 3000, "max_poll_interval_ms": 30_000}
        first = await join(stage, "t", group_protocol=protocol, **slow)
        await stage.until(lambda: is_healthy(first), first)
        held = stage.cluster.hang(
            "JoinGroup" if protocol == "classic" else "ConsumerGroupHeartbeat"
        )
        first.consumer.enforce_rebalance("a test")
        if protocol == "classic":
            await stage.until(
                lambda: first.consumer.group_metadata().state == "<rebalancing>", first
            )
        else:
            await stage.until(lambda: held.hits, first)
        for _ in range(6):
            await pass_seconds(first, 10)
            assert is_healthy(first)
            await first.poll()
            assert is_healthy(first)
        held.stop()

    # the session is longer than the rebalance, as it is by default on brokers of Kafka
    perform(api, script, {"t": 1})


@APIS
def test_a_listener_of_ten_minutes_changes_nothing(api: str) -> None:
    async def script(stage: Stage) -> None:
        inside: list[Health] = []

        async def revoked(member: Driven, _: frozenset[TopicPartition]) -> None:
            if not inside:
                await pass_seconds(member, 2 * MAX_POLL_S)
                inside.append(member.consumer.health())

        member = await join(stage, "t", revoked=revoked, group_protocol="classic")
        await stage.until(lambda: is_healthy(member), member)
        member.consumer.enforce_rebalance("a test")
        await stage.until(lambda: inside, member)
        assert inside[0] == HEALTHY

    perform(api, script, {"t": 1})


@APIS
def test_brokers_that_go_away_change_nothing(api: str) -> None:
    async def script(stage: Stage) -> None:
        member = await join(stage, "t")
        await stage.until(lambda: is_healthy(member), member)
        with stage.cluster.network_partition():
            for _ in range(5):
                await pass_seconds(member, 5)
                await member.poll()
                assert is_healthy(member)

    perform(api, script, {"t": 1})


@APIS
def test_brokers_that_are_away_at_the_start_leave_it_live(api: str) -> None:
    async def script(stage: Stage) -> None:
        with stage.cluster.hang():
            member = await _assigned(stage)
            for _ in range(5):
                await pass_seconds(member, 5)
                await member.poll()
                assert member.consumer.health().live

    perform(api, script, {"t": 1})


@APIS
def test_lag_changes_nothing(api: str) -> None:
    async def script(stage: Stage) -> None:
        stage.cluster.produce("t", ["x"] * 1000)
        member = await join(stage, "t", max_poll_records=1)
        await stage.until(lambda: (member.consumer.lag().get(TP) or 0) > 900, member)
        assert is_healthy(member)

    perform(api, script, {"t": 1})


@APIS
def test_a_missing_right_leaves_it_live_and_is_the_reason(api: str) -> None:
    async def script(stage: Stage) -> None:
        with stage.cluster.fail(
            "FindCoordinator", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None
        ):
            member = await join(stage, "t")
            await stage.error(GroupAuthorizationFailedError, member)
            health = member.consumer.health()
            assert health.live and not health.ready
            assert any("GroupAuthorizationFailed" in each for each in health.reasons)
        await stage.until(lambda: is_healthy(member), member)

    perform(api, script, {"t": 1})


@pytest.mark.parametrize("make_one", [KafkaConsumer, AsyncKafkaConsumer])
def test_live_before_the_start(make_one: Any) -> None:
    consumer = make_one("t", bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}")
    health = consumer.health()
    assert health.live and not health.ready
    assert "not started" in reason(health)


# -- not live --------------------------------------------------------------------------------------


@APIS
def test_not_live_when_no_call_polls(api: str) -> None:
    async def script(stage: Stage) -> None:
        member = await join(stage, "t")
        await stage.until(lambda: is_healthy(member), member)
        await pass_seconds(member, MAX_POLL_S - 1)
        assert is_healthy(member)
        await pass_seconds(member, 1)
        assert member.consumer.health() == Health(
            False, False, ("no call of poll() for 10 s, and max_poll_interval_ms allows 10 s",)
        )
        await member.poll()
        assert member.consumer.health().live

    perform(api, script, {"t": 1})


@APIS
def test_the_limit_of_silence_is_an_option(api: str) -> None:
    async def script(stage: Stage) -> None:
        member = await join(stage, "t", max_poll_interval_ms=300_000)
        await stage.until(lambda: is_healthy(member), member)
        await pass_seconds(member, 2 * MAX_POLL_S)
        assert is_healthy(member)

    perform(api, script, {"t": 1})


@APIS
def test_not_live_after_the_end_of_the_engine(api: str, caplog: pytest.LogCaptureFixture) -> None:
    async def script(stage: Stage) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        member = await join(stage, "t")
        await stage.until(lambda: is_healthy(member), member)
        member.consumer._driver.engine._topics._apply_subscription = fail
        member.want("u")
        await stage.error(IllegalStateError, member)
        health = member.consumer.health()
        assert not health.live and not health.ready
        assert "broken down: " in reason(health) and "ZeroDivisionError" in reason(health)

    perform(api, script, {"t": 1, "u": 1})
    assert "internal error in kohort" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_not_live_after_the_end_of_the_thread(topic: str, group: str, make: MakeConsumer) -> None:
    consumer = make(topic, group_id=group)
    poll_until(consumer, lambda: consumer.health() == HEALTHY)
    thread = consumer._driver.running_thread()
    thread.call_soon(sys.exit)
    thread._thread.join(90)
    health = consumer.health()
    assert not health.live and "ended" in reason(health)


def test_not_live_after_the_end_of_the_task() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster, "t")
            await consumer.start()
            assert consumer.health() == HEALTHY
            task = consumer._driver.background_task
            assert task is not None
            task._task.cancel()  # type: ignore[attr-defined]
            await cluster.wait_until(lambda: not consumer.health().live)
            assert "ended" in reason(consumer.health())
            await consumer.close()

    asyncio.run(main())


LEFT_WITH = [
    (ValueError, "the block of the consumer has ended with ValueError"),
    (KeyboardInterrupt, "the consumer is closed"),
    (WakeupError, "the consumer is closed"),
    (None, "the consumer is closed"),
]
"""The error that leaves a block, and the reason afterwards. One that is no error is a stop."""


@pytest.mark.parametrize(("error", "shown"), LEFT_WITH)
def test_not_live_after_an_error_left_the_block(
    make: MakeConsumer, topic: str, error: Any, shown: str
) -> None:
    with suppress(*([error] if error else [])), make(topic) as consumer:
        consumer.poll()
        if error is not None:
            raise error
    assert consumer.health() == Health("closed" in shown, False, (shown,))


@pytest.mark.parametrize(
    ("error", "shown"), [*LEFT_WITH, (trio.Cancelled, "the consumer is closed")]
)
def test_not_live_after_an_error_left_the_async_block(error: Any, shown: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster, "t")
            with anyio.CancelScope() as scope, suppress(*([error] if error else [])):
                async with consumer:
                    if error is trio.Cancelled:
                        scope.cancel()
                        await anyio.sleep(1)
                    if error is not None:
                        raise error
            assert consumer.health() == Health("closed" in shown, False, (shown,))

    run_virtual(main)


# -- the value -------------------------------------------------------------------------------------


def test_the_value_has_fields_and_a_dictionary() -> None:
    health = Health(True, False, ("a", "b"))
    live, ready, reasons = health
    assert (live, ready, reasons) == (True, False, ("a", "b"))
    plain = {"live": True, "ready": False, "reasons": ["a", "b"]}
    assert json.loads(json.dumps(health.as_dict())) == plain


def test_no_health_in_a_forked_process(make: MakeConsumer, topic: str) -> None:
    consumer = make(topic)
    consumer.poll()
    life = consumer._driver.life
    pid, life.pid = life.pid, -1
    try:
        with pytest.raises(ForkedConsumerError):
            consumer.health()
    finally:
        life.pid = pid


def test_health_is_that_of_the_moment_while_polled() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            limit = 1000 * MAX_POLL_S
            async with (
                MemoryConsumer(cluster, "t", max_poll_interval_ms=limit) as consumer,
                polled(consumer),
            ):
                for _ in range(20):
                    await anyio.sleep(MAX_POLL_S / 2)
                    assert consumer.health() == HEALTHY

    run_virtual(main)
