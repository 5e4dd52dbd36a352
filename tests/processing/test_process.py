"""process() with AsyncKafkaConsumer, on the virtual clocks of asyncio and trio."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kohort import (
    ConsumerRebalanceListener,
    ConsumerRecord,
    KafkaError,
    TopicPartition,
)
from kohort.errors import (
    ConfigurationError,
    ErrorCode,
    GroupAuthorizationFailedError,
    RebalanceListenerError,
)
from kohort.listeners import RebalanceContext
from kohort.processing import GiveUp, Retry, Skip, Stop, context, process
from kohort.processing._in_tasks import STEPS, TURN_SECONDS
from tests.processing.kit import World, in_world, processing, until

Record = ConsumerRecord[bytes, bytes]

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Handler:
    """A handler that keeps the values of its records, and calls a function with each record."""

    def __init__(self, act: Callable[[Record], Any] = lambda record: None) -> None:
        self.values: list[str] = []
        self._act = act

    async def __call__(self, record: Record) -> None:
        result = self._act(record)
        if result is not None:
            await result
        self.values.append((record.value or b"").decode())


def test_records_are_handled_and_committed(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler()
        world.produce("a", "b", "c")
        async with processing(world.consumer(), handler):
            await until(lambda: world.committed() == 3)
            world.produce("d")
            await until(lambda: world.committed() == 4)
        assert handler.values == ["a", "b", "c", "d"]

    in_world(backend, main)


def test_what_is_done_at_the_stop_is_committed(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler()
        world.produce("a", "b")
        async with processing(world.consumer(), handler, commit_interval=1e6):
            await until(lambda: len(handler.values) == 2)
            assert world.committed() is None
        assert world.committed() == 2
        assert world.cluster.group("g").members == ()

    in_world(backend, main)


def test_automatic_commits_are_off(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        consumer = world.consumer(auto_commit_interval_ms=10)
        async with processing(consumer, Handler(lambda record: anyio.sleep(100))):
            await anyio.sleep(60)
            assert world.committed() == 0
        assert world.committed() == 0

    in_world(backend, main)


def test_a_stop_waits_for_running_handlers_only(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler(lambda record: anyio.sleep(5))
        world.produce("a", "b")
        async with processing(world.consumer(), handler):
            await anyio.sleep(7)
            assert handler.values == ["a"]
        assert handler.values == ["a", "b"]
        assert world.committed() == 2

    in_world(backend, main)


def test_a_handler_longer_than_the_drain_is_cancelled(backend: str) -> None:
    async def main(world: World) -> None:
        seen: list[tuple[bool, bool]] = []

        async def handler(record: Record) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                late = (context.deadline or 0) <= anyio.current_time()
                seen.append((context.cancelled, late))

        world.produce("a")
        async with processing(world.consumer(), handler, drain=3):
            await anyio.sleep(7)
            began = anyio.current_time()
        assert 3 <= anyio.current_time() - began < 4
        assert seen == [(True, True)]
        assert world.committed() == 0

    in_world(backend, main)


def test_a_cancelled_handler_leaves_one_slot(backend: str) -> None:
    async def main(world: World) -> None:
        running: set[tuple[int, int]] = set()
        most: list[int] = []

        async def handler(record: Record) -> None:
            place = record.partition, record.offset
            running.add(place)
            most.append(len(running))
            try:
                await anyio.sleep(1e6 if record.partition else 5)
            finally:
                running.remove(place)

        world.produce("slow", partition=1, key="slow")
        options = {"order": "key", "drain": 1, "concurrency": 1}
        async with processing(world.consumer(), handler, **options):
            await until(lambda: running)
            for number in range(8):
                world.produce("x", key=f"k{number}")
            async with world.consumer() as other:
                while not other.assignment():
                    await other.poll(timeout_ms=500)
                await until(lambda: world.committed() == 8)
        assert max(most) == 1

    in_world(backend, main, partitions=2)


def test_a_second_request_ends_the_drain(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        consumer = world.consumer()
        async with processing(consumer, Handler(lambda record: anyio.sleep_forever()), drain=1000):
            await anyio.sleep(7)
            consumer.wakeup()
            await anyio.sleep(1)
            began = anyio.current_time()
        assert anyio.current_time() - began < 2

    in_world(backend, main)


def test_a_cancelled_process_commits_and_leaves(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler(lambda record: anyio.sleep_forever() if record.value == b"b" else None)
        world.produce("a", "b")
        with anyio.move_on_after(7):
            await process(world.consumer(), handler, commit_interval=1e6, handle_signals=False)
        assert handler.values == ["a"]
        assert world.committed() == 1
        assert world.cluster.group("g").members == ()

    in_world(backend, main)


def test_process_may_run_in_the_block_of_a_started_consumer(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler()
        world.produce("a")
        async with world.consumer() as consumer, processing(consumer, handler):
            await until(lambda: world.committed() == 1)
        assert handler.values == ["a"]

    in_world(backend, main)


def test_partitions_of_assign_are_processed(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler()
        world.produce("a")
        async with world.consumer("other") as consumer:
            await consumer.unsubscribe()
            consumer.assign([TopicPartition("orders", 0)])
            async with processing(consumer, handler):
                await until(lambda: world.committed() == 1)
        assert handler.values == ["a"]

    in_world(backend, main)


# -- failures ----------------------------------------------------------------------------------


def test_the_error_of_a_handler_is_raised_after_the_retries(backend: str) -> None:
    async def main(world: World) -> None:
        attempts: list[int] = []

        async def handler(record: Record) -> None:
            if record.value == b"bad":
                attempts.append(context.attempt)
                raise ValueError("bad record")

        world.produce("a", "bad", "c")
        with pytest.raises(ValueError, match="bad record") as raised:
            await process(world.consumer(), handler, retry=Retry(3, first=2.0))
        assert attempts == [1, 2, 3]
        assert raised.value.__notes__ == [
            "process() stopped at orders-0 offset 1 after attempt 3. The record is not committed"
        ]
        assert world.committed() == 1
        assert world.cluster.group("g").members == ()

    in_world(backend, main)


def test_a_failed_record_holds_up_its_key_alone(backend: str) -> None:
    async def main(world: World) -> None:
        def act(record: Record) -> None:
            if record.value == b"a1" and context.attempt < 3:
                raise ConnectionError

        handler = Handler(act)
        world.produce("a1", "a2", key="a")
        world.produce("b1", "b2", key="b")
        retry = [Retry(None, on=ConnectionError, first=10.0), Retry(1)]
        async with processing(world.consumer(), handler, order="key", concurrency=1, retry=retry):
            await until(lambda: world.committed() == 4)
        assert handler.values == ["b1", "b2", "a1", "a2"]

    in_world(backend, main)


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_failed_record_is_handed_over_until_that_succeeds(backend: str, coroutine: bool) -> None:
    class DeadLetters:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, str, int]] = []

        def handle(self, record: Record, error: Exception, attempts: int) -> Any:
            self.calls.append((record.value, str(error), attempts))
            if len(self.calls) < 3:
                raise OSError("away")
            return anyio.sleep(1) if coroutine else None

    async def main(world: World) -> None:
        def act(record: Record) -> None:
            if record.value == b"bad":
                raise GiveUp from ValueError("wrong")

        handler, letters = Handler(act), DeadLetters()
        world.produce("a", "bad", "c")
        async with processing(world.consumer(), handler, retry=Retry(5), failed=letters):
            await until(lambda: world.committed() == 3)
        assert handler.values == ["a", "c"]
        assert letters.calls == [(b"bad", "wrong", 1)] * 3

    in_world(backend, main)


def test_skip_and_stop_are_outcomes_of_a_handler(backend: str) -> None:
    async def main(world: World) -> None:
        def act(record: Record) -> None:
            if record.value == b"skip":
                raise Skip
            if record.value == b"stop":
                raise Stop

        handler = Handler(act)
        world.produce("a", "skip", "b", "stop", "c")
        await process(world.consumer(), handler, retry=Retry(5))
        assert handler.values == ["a", "b"]
        assert world.committed() == 3

    in_world(backend, main)


def test_a_skipped_failure_is_logged(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        def act(record: Record) -> None:
            if record.value == b"bad":
                raise ValueError("wrong")

        handler = Handler(act)
        world.produce("a", "bad", "b")
        async with processing(world.consumer(), handler, failed="skip"):
            await until(lambda: world.committed() == 3)
        assert handler.values == ["a", "b"]

    in_world(backend, main)
    lines = [each.getMessage() for each in caplog.records if each.name == "kohort.processing"]
    assert lines == [
        "orders-0 offset 1: skipped after 1 attempts, because the handler raised ValueError: wrong"
    ]


def test_ctrl_c_in_a_handler_ends_process_at_once(backend: str) -> None:
    async def main(world: World) -> None:
        def act(record: Record) -> Any:
            if record.value == b"b":
                raise KeyboardInterrupt
            return anyio.sleep_forever() if record.value == b"a" else None

        world.produce("a", "b")
        began = anyio.current_time()
        with pytest.raises(KeyboardInterrupt):
            await process(world.consumer(), Handler(act), order="none", drain=1000)
        assert anyio.current_time() - began < 30

    in_world(backend, main)


def test_the_cancellation_of_an_awaited_task_is_a_failure(backend: str) -> None:
    if backend == "trio":
        return  # trio raises a cancellation in the cancelled scope alone

    async def main(world: World) -> None:
        import asyncio

        async def handler(record: Record) -> None:
            task = asyncio.create_task(asyncio.sleep(100))
            await asyncio.sleep(1)
            task.cancel()
            await task

        world.produce("a")
        with pytest.raises(Exception, match="cancellation") as raised:
            await process(world.consumer(), handler)
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)

    in_world(backend, main)


def test_a_handler_that_cancels_its_own_task_is_not_the_last(backend: str) -> None:
    if backend == "trio":
        return  # a task of trio has no method to cancel it

    async def main(world: World) -> None:
        import asyncio

        def cancel(record: Record) -> None:
            task = asyncio.current_task()
            assert task is not None and task.cancel()

        handler = Handler(cancel)
        async with processing(world.consumer(), handler):
            for value in "abc":
                world.produce(value)
                await anyio.sleep(7)
        assert handler.values == ["a", "b", "c"]

    in_world(backend, main)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_cancellation_does_not_stay_for_the_next_handler(backend: str, is_awaited: bool) -> None:
    if backend == "trio":
        return  # a task of trio has no method to cancel it

    async def main(world: World) -> None:
        import asyncio

        async def handler(record: Record) -> None:
            task = asyncio.current_task()
            assert task is not None
            if record.value == b"a" and context.attempt == 1:
                task.cancel()
                if is_awaited:
                    await anyio.sleep(1)
            else:
                assert not task.cancelling()

        world.produce("a")
        async with processing(world.consumer(), handler, retry=Retry(2, first=1)):
            await anyio.sleep(10)
            world.produce("b")
            await until(lambda: world.committed() == 2)

    in_world(backend, main)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_handler_that_cancels_its_task_fails_no_record(backend: str, key: str | None) -> None:
    if backend == "trio":
        return  # a task of trio has no method to cancel it

    async def main(world: World) -> None:
        import asyncio

        attempts: list[tuple[bytes | None, int]] = []

        async def handler(record: Record) -> None:
            await anyio.lowlevel.checkpoint()
            attempts.append((record.value, context.attempt))
            if record.value == b"a":
                task = asyncio.current_task()
                assert task is not None and task.cancel()

        world.produce("a", "b", "c", key=key)
        async with processing(world.consumer(), handler, retry=Retry(2, first=1)):
            await until(lambda: world.committed() == 3)
        assert attempts == [(b"a", 1), (b"b", 1), (b"c", 1)]

    in_world(backend, main)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_handler_that_cancels_its_task_and_raises_fails_alone(
    backend: str, key: str | None
) -> None:
    if backend == "trio":
        return  # a task of trio has no method to cancel it

    async def main(world: World) -> None:
        import asyncio

        handled: list[bytes | None] = []

        async def handler(record: Record) -> None:
            await anyio.lowlevel.checkpoint()
            handled.append(record.value)
            if record.value == b"a":
                task = asyncio.current_task()
                assert task is not None and task.cancel()
                raise ValueError

        world.produce("a", "b", "c", key=key)
        async with processing(world.consumer(), handler, failed="skip"):
            await until(lambda: world.committed() == 3)
        assert handled == [b"a", b"b", b"c"]

    in_world(backend, main)


def test_a_late_cancellation_of_a_slot_ends_nothing(backend: str) -> None:
    if backend == "trio":
        return  # a task of trio has no method to cancel it

    async def main(world: World) -> None:
        import asyncio

        handled: list[int] = []

        async def handler(record: Record) -> None:
            handled.append(record.offset)
            if len(handled) == STEPS - 1:  # after it, the slot lets other tasks run
                await anyio.sleep(2 * TURN_SECONDS)
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)

        world.produce(*map(str, range(2 * STEPS)))
        async with processing(world.consumer(), handler):
            await until(lambda: world.committed() == 2 * STEPS)
        assert handled == [*range(2 * STEPS)]

    in_world(backend, main)


def test_the_next_record_of_a_key_needs_no_step_of_the_loop(backend: str) -> None:
    if backend == "trio":
        return  # trio runs no callbacks in the order of its tasks

    async def main(world: World) -> None:
        import asyncio

        steps: list[str] = []

        async def handler(record: Record) -> None:
            steps.append("begin")
            await anyio.sleep(1)
            asyncio.get_running_loop().call_soon(steps.append, "step")

        world.produce("a", "b", "c", key="k")
        async with processing(world.consumer(), handler, order="key"):
            await anyio.sleep(12)
        assert steps == ["begin", "begin", "step", "begin", "step", "step"]

    in_world(backend, main)


def test_a_stuck_record_is_named_once(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        handler = Handler(lambda record: anyio.sleep(60))
        async with processing(world.consumer(), handler, stuck_after=20):
            await anyio.sleep(60)

    in_world(backend, main)
    (line,) = [each for each in caplog.records if each.name == "kohort.processing"]
    assert line.levelno == logging.WARNING
    assert "orders-0 offset 0: in flight for 2" in line.getMessage()


def test_a_slow_handler_keeps_the_membership(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler(lambda record: anyio.sleep(60))
        world.produce("a")
        consumer = world.consumer(max_poll_interval_ms=10_000)
        async with processing(consumer, handler):
            await until(lambda: world.committed() == 1)

    in_world(backend, main)


# -- the consumer ------------------------------------------------------------------------------


def test_a_full_partition_is_paused_and_pauses_of_others_stay(backend: str) -> None:
    async def main(world: World) -> None:
        first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
        go = anyio.Event()
        handler = Handler(lambda record: go.wait())
        world.produce(*map(str, range(50)))
        world.produce(*map(str, range(50)), partition=1)
        consumer = world.consumer(max_poll_records=5)
        async with consumer:
            consumer.pause(second)
            async with processing(consumer, handler, order="none", window=10):
                await until(lambda: first in consumer.paused())
                go.set()
                await until(lambda: world.committed() == 50)
                assert consumer.paused() == {second}
                assert world.committed(1) in (None, 0)

    in_world(backend, main, partitions=2)


def test_the_listener_of_the_program_is_called_too(backend: str) -> None:
    async def main(world: World) -> None:
        calls: list[tuple[str, list[str]]] = []
        handler = Handler(lambda record: anyio.sleep(2))

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
                await anyio.lowlevel.checkpoint()
                calls.append(("assigned", list(handler.values)))

            def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
                calls.append(("revoked", list(handler.values)))

        consumer = world.consumer()
        consumer.subscribe(["orders"], listener=Listener())
        world.produce("a")
        async with processing(consumer, handler):
            await anyio.sleep(6)
        assert calls == [("assigned", []), ("revoked", ["a"])]

    in_world(backend, main)


def test_listeners_of_the_program_get_the_context_of_the_rebalance(backend: str) -> None:
    async def main(world: World) -> None:
        causes: list[str] = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(
                self, assigned: frozenset[TopicPartition], *, rebalance: RebalanceContext
            ) -> None:
                causes.append(rebalance.cause)

        consumer = world.consumer()
        consumer.subscribe(["orders"], listener=Listener())
        async with processing(consumer, Handler()):
            await anyio.sleep(6)
        assert causes == ["subscribed"]

    in_world(backend, main)


def test_a_drain_ends_with_the_time_that_the_rebalance_leaves(backend: str) -> None:
    async def main(world: World) -> None:
        begun: list[Record] = []
        waited: list[float] = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(
                self, revoked: frozenset[TopicPartition], *, rebalance: RebalanceContext
            ) -> None:
                waited.append(rebalance.deadline - anyio.current_time())

        consumer = world.consumer(max_poll_interval_ms=20_000)
        consumer.subscribe(["orders"], listener=Listener())
        world.produce("a")
        world.produce("b", partition=1)

        async def slow(record: Record) -> None:
            begun.append(record)
            await anyio.sleep(100)

        async with processing(consumer, slow, drain=1000):
            await until(lambda: len(begun) == 2)
            async with processing(world.consumer(max_poll_interval_ms=20_000), Handler()):
                await until(lambda: bool(waited))
        assert waited[0] == pytest.approx(2, abs=0.5)

    in_world(backend, main, partitions=2)


def test_a_deadline_ends_with_its_rebalance(backend: str) -> None:
    async def main(world: World) -> None:
        deadlines: list[float | None] = []

        async def handler(record: Record) -> None:
            await anyio.sleep(20)
            deadlines.append(context.deadline)

        def produce(*keys: str) -> None:
            for partition in range(2):
                for key in keys:
                    world.produce(key, key=key, partition=partition)

        produce("a", "b")
        other = world.consumer()
        async with processing(world.consumer(), handler, order="key", drain=60):
            await anyio.sleep(4)
            async with other:
                await until(lambda: len(deadlines) == 4)
                assert any(deadlines)
                await until(lambda: bool(other.assignment()))
                produce("c", "d", "e", "f")
                await until(lambda: len(deadlines) == 8)
        assert deadlines[4:] == [None] * 4

    in_world(backend, main, partitions=2)


def test_one_task_handles_records_that_come_one_by_one(backend: str) -> None:
    async def main(world: World) -> None:
        tasks: list[int] = []

        async def handler(record: Record) -> None:
            tasks.append(anyio.get_current_task().id)
            await anyio.sleep(0.1)

        async with processing(world.consumer(), handler):
            for value in "abcde":
                world.produce(value)
                await anyio.sleep(7)
        assert len(tasks) == 5 and len(set(tasks)) == 1

    in_world(backend, main)


def test_an_error_of_the_listener_stops_process(backend: str) -> None:
    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            raise ValueError("no")

    async def main(world: World) -> None:
        consumer = world.consumer()
        consumer.subscribe(["orders"], listener=Listener())
        with pytest.raises(RebalanceListenerError, match="no"):
            await process(consumer, Handler())

    in_world(backend, main)


def test_large_done_sets_are_left_out_where_brokers_refuse_them(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        go = anyio.Event()
        handler = Handler(lambda record: go.wait() if record.value == b"0" else None)

        world.produce(*map(str, range(200)))
        async with processing(world.consumer(), handler, order="none"):
            await until(lambda: len(handler.values) == 199)
            await anyio.sleep(10)
            assert world.committed() == 0
            go.set()
            await until(lambda: world.committed() == 200)

    in_world(backend, main, configs={"offset.metadata.max.bytes": 20})
    lines = [each for each in caplog.records if each.name == "kohort.processing"]
    assert [line.levelno for line in lines] == [logging.WARNING]
    assert "offset.metadata.max.bytes" in lines[0].getMessage()


def test_process_waits_for_brokers_that_are_away(backend: str) -> None:
    async def main(world: World) -> None:
        handler = Handler()
        world.produce("a")
        world.cluster.kill_broker(1)
        async with processing(world.consumer(bootstrap_timeout_ms=2000), handler):
            await anyio.sleep(100)
            world.cluster.start_broker(1)
            await until(lambda: world.committed() == 1)
        assert handler.values == ["a"]

    in_world(backend, main)


def test_a_stop_ends_the_wait_for_brokers(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.kill_broker(1)
        async with processing(world.consumer(), Handler()):
            await anyio.sleep(100)
            began = anyio.current_time()
        assert anyio.current_time() - began < 6

    in_world(backend, main)


def test_a_stop_before_the_first_assignment_leaves(backend: str) -> None:
    async def main(world: World) -> None:
        for moment in (0.0, 0.001, 0.5, 2.9, 3.0, 3.01):
            consumer = world.consumer(group_protocol="classic")
            async with anyio.create_task_group() as tasks:

                async def stop(consumer: Any, moment: float) -> None:
                    await anyio.sleep(moment)
                    consumer.wakeup()

                tasks.start_soon(stop, consumer, moment)
                began = anyio.current_time()
                await process(consumer, Handler(), handle_signals=False)
            assert anyio.current_time() - began < moment + 6
            assert world.cluster.group("g").members == ()

    in_world(backend, main)


def test_errors_that_do_not_pass_are_raised(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.fail("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(GroupAuthorizationFailedError):
            await process(world.consumer(group_protocol="classic"), Handler())

    in_world(backend, main)


def test_handlers_of_the_other_api_are_refused(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        with pytest.raises(ConfigurationError, match="returned no awaitable"):
            await process(world.consumer(), lambda record: None, failed="skip")  # type: ignore[call-overload]
        assert world.committed() == 0

    in_world(backend, main)


def test_a_group_is_needed(backend: str) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConfigurationError, match="needs a group"):
            await process(world.consumer(group_id=None), Handler())

    in_world(backend, main)


def test_unhashable_keys_stop_process(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("a", key="k")
        consumer: Any = world.consumer(key_deserializer=lambda data: [data])
        with pytest.raises(KafkaError, match="cannot compare"):
            await process(consumer, Handler(), order="key")

    in_world(backend, main)


def test_a_delay_holds_records_back(backend: str) -> None:
    async def main(world: World) -> None:
        times: list[float] = []

        async def handler(record: Record) -> None:
            times.append(world.cluster.wall_clock() - record.timestamp / 1000)

        world.produce("a", "b")
        async with processing(world.consumer(), handler, delay=60):
            await until(lambda: world.committed() == 2)
        assert all(60 <= passed < 61 for passed in times)

    in_world(backend, main)
