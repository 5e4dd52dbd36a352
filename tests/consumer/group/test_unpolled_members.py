"""Members that are not polled: they take part in a rebalance if the caller has no records."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from kohort import ConsumerRebalanceListener, TopicPartition
from kohort.assignors import Assignments, ClusterTopics, PartitionAssignor, Subscription
from kohort.errors import RebalanceListenerError, ReentrantCallError
from kohort.testing import MemoryCluster
from tests.consumer.kit import Partitions
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    ClassicConsumer,
    MemoryConsumer,
    poll_for,
    values,
)
from tests.support.virtual import run_virtual, run_virtual_on

BOTH = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})
HEARTBEAT = 3.0
"""Seconds. A heartbeat response reports a rebalance to a member."""
SOON = 2 * HEARTBEAT
MODES = ["idle", "always", "never"]
HELD = ["idle", "never"]
"""The modes in which returned records delay a rebalance."""


class Notes(ConsumerRebalanceListener):
    """A listener that records its calls and tasks. ``hooks`` maps a callback to a coroutine."""

    def __init__(self, **hooks: Callable[[Partitions], Awaitable[object]]) -> None:
        self.calls: list[tuple[str, Partitions]] = []
        self.tasks: list[int] = []
        self.running = 0
        self.hooks = hooks

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    async def _called(self, name: str, partitions: Partitions) -> None:
        self.calls.append((name, partitions))
        self.tasks.append(anyio.get_current_task().id)
        self.running += 1
        try:
            await anyio.lowlevel.checkpoint()
            if name in self.hooks:
                await self.hooks[name](partitions)
        finally:
            self.running -= 1

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        await self._called("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        await self._called("assigned", assigned)

    async def on_partitions_lost(self, lost: Partitions) -> None:
        await self._called("lost", lost)


_backend: list[str] = []


@pytest.fixture(autouse=True)
def _on_both_loops(anyio_backend: str) -> Iterator[None]:
    _backend.append(anyio_backend)
    yield
    _backend.pop()


class Scene:
    """A cluster with a topic of two partitions, and consumers of one group on it.

    The group is classic without the fixture ``each_protocol``.
    """

    def __init__(self, cluster: MemoryCluster, stack: AsyncExitStack, tasks: TaskGroup) -> None:
        self.cluster = cluster
        self.tasks = tasks
        self._stack = stack

    def make(self, listener: Any = None, **configs: Any) -> MemoryConsumer:
        protocol = MemoryConsumer.default_protocol or "classic"
        configs = {"group_protocol": protocol, "seed": random.randrange(1000), **configs}
        consumer = MemoryConsumer(self.cluster, **configs)
        consumer.subscribe(["t"], listener=listener)
        return consumer

    async def start(self, listener: Any = None, **configs: Any) -> MemoryConsumer:
        return await self.enter(self.make(listener, **configs))

    async def enter(self, consumer: MemoryConsumer) -> MemoryConsumer:
        await self._stack.enter_async_context(consumer)
        return consumer

    async def second_starts(self, seconds: float = SOON, **configs: Any) -> bool:
        """True if another member gets its partitions within this time."""
        started = anyio.Event()
        consumer = self.make(client_id="second", **configs)

        async def run() -> None:
            async with consumer:
                started.set()
                await anyio.sleep_forever()

        self.tasks.start_soon(run)
        with anyio.move_on_after(seconds):
            await started.wait()
        return started.is_set()


def play(scene: Callable[[Scene], Awaitable[None]], *, seed: int = 0, **topics: int) -> None:
    async def main() -> None:
        async with (
            MemoryCluster(
                topics=topics or {"t": 2},
                seed=seed,
                consumer_heartbeat_interval_ms=int(1000 * HEARTBEAT),
                consumer_assignment_interval_ms=0,
            ) as cluster,
            anyio.create_task_group() as tasks,
            AsyncExitStack() as stack,
        ):
            await scene(Scene(cluster, stack, tasks))
            tasks.cancel_scope.cancel()

    random.seed(seed)
    run_virtual_on(_backend[-1], main, seed=seed)


# --- nothing in hand ----------------------------------------------------------------------------


@EACH_PROTOCOL
@pytest.mark.parametrize("mode", MODES)
def test_second_start_waits_only_for_a_member_set_to_never(mode: str) -> None:
    async def scene(it: Scene) -> None:
        listener = Notes()
        first = await it.start(listener, rebalance_without_poll=mode)
        assert await it.second_starts() == (mode != "never")
        if mode != "never":
            assert listener.names == ["assigned", "revoked", "assigned"]
            assert len(first.assignment()) == 1

    play(scene)


@pytest.mark.cases(20)  # three members each
@EACH_PROTOCOL
@pytest.mark.parametrize("seed", range(20))
def test_three_members_that_start_at_once_all_start(seed: int) -> None:
    async def scene(it: Scene) -> None:
        members = [it.make(client_id=name) for name in "abc"]
        done = 0

        async def run(member: MemoryConsumer) -> None:
            nonlocal done
            async with member:
                done += 1
                await anyio.sleep_forever()

        for member in members:
            it.tasks.start_soon(run, member)
        await it.cluster.wait_until(lambda: done == 3, 4 * HEARTBEAT)

        def shared() -> bool:
            owned = [len(member.assignment()) for member in members]
            return owned == [1, 1, 1] and it.cluster.group("g").is_stable

        await it.cluster.wait_until(shared, SOON)

    play(scene, seed=seed, t=3)


@EACH_PROTOCOL
def test_a_subscription_made_later_joins_without_a_poll() -> None:
    async def scene(it: Scene) -> None:
        consumer = await it.enter(MemoryConsumer(it.cluster))
        await anyio.sleep(400)  # longer than max_poll_interval_ms
        listener = Notes()
        consumer.subscribe(["t"], listener=listener)
        await it.cluster.wait_until(lambda: listener.calls == [("assigned", BOTH)], SOON)
        assert consumer.assignment() == BOTH

    play(scene)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_member_whose_last_poll_found_nothing_gives_way(strategy: str) -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b"])
        first = await it.start(partition_assignment_strategy=strategy)
        assert sorted(await values(first, 2)) == [b"a", b"b"]
        assert await first.poll() == {}
        assert await it.second_starts(partition_assignment_strategy=strategy)
        await it.cluster.wait_until(lambda: len(first.assignment()) == 1, SOON)
        committed = await first.committed(BOTH)
        assert set(committed.values()) == {1}, "all that was returned is committed"

    play(scene)


@pytest.mark.parametrize("mode", HELD)
@pytest.mark.parametrize("way", ["poll", "__anext__", "poll_batches"])
def test_returned_records_hold_up_a_rebalance(each_protocol: str, way: str, mode: str) -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b", "c", "d"])
        listener = Notes()
        first = await it.start(listener, rebalance_without_poll=mode)
        while not await getattr(first, way)():
            pass
        # A member of a consumer group starts without partitions.
        assert await it.second_starts(60) == (each_protocol == "consumer")
        assert listener.names == ["assigned"]

    play(scene)


@EACH_PROTOCOL
@pytest.mark.parametrize("end", ["poll", "error", "unsubscribe"])
def test_the_next_call_ends_what_was_in_hand(end: str) -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a"], partition=0)
        first = await it.start(Notes())
        assert (await anext(first)).value == b"a"
        if end == "poll":
            assert await first.poll() == {}
        elif end == "unsubscribe":
            await first.unsubscribe()
            first.subscribe(["t"])
        else:
            first.wakeup()
            with pytest.raises(Exception, match="wakeup"):
                await first.poll(timeout_ms=1000)
        assert await it.second_starts()

    play(scene)


@EACH_PROTOCOL
def test_a_seek_does_not_end_what_was_in_hand() -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b"], partition=0)
        first = await it.start()
        assert (await anext(first)).value == b"a"
        first.seek(TopicPartition("t", 0), 0)
        assert not await it.second_starts()
        assert await first.poll(partitions=[TopicPartition("t", 1)]) == {}
        assert await it.second_starts()

    play(scene)


@EACH_PROTOCOL
def test_unsubscribe_awaits_the_listener_without_a_poll() -> None:
    async def scene(it: Scene) -> None:
        listener = Notes()
        first = await it.start(listener)
        await first.unsubscribe()
        await it.cluster.wait_until(lambda: not it.cluster.group("g").members, SOON)
        assert listener.names == ["assigned", "revoked"]
        assert first.assignment() == set()

    play(scene)


@EACH_PROTOCOL
@pytest.mark.parametrize("pause", [0.0, 0.001, 1.0])
def test_subscribe_after_unsubscribe_is_kept_without_a_poll(pause: float) -> None:
    async def scene(it: Scene) -> None:
        async def slow(partitions: Partitions) -> None:
            await anyio.sleep(0.5)

        listener = Notes(revoked=slow)
        first = await it.start(listener)
        await first.unsubscribe()
        await anyio.sleep(pause)
        first.subscribe(["t"], listener=listener)
        await anyio.sleep(2 * SOON)
        assert first.assignment() == BOTH
        assert listener.calls[-1] == ("assigned", BOTH)

    play(scene)


@pytest.mark.cases(24)  # two kinds of each kind
@EACH_PROTOCOL
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pause", [0.0, 0.001, 1.0])
@pytest.mark.parametrize("to_pattern", [True, False])
def test_subscribe_after_unsubscribe_may_change_its_kind(
    to_pattern: bool, pause: float, mode: str
) -> None:
    new = frozenset({TopicPartition("new", 0)})

    async def scene(it: Scene) -> None:
        async def slow(partitions: Partitions) -> None:
            await anyio.sleep(0.5)

        def subscribe(topic: str, by_pattern: bool) -> None:
            if by_pattern:
                first.subscribe(pattern=topic + "$", listener=listener)
            else:
                first.subscribe([topic], listener=listener)

        listener = Notes(revoked=slow)
        first = MemoryConsumer(it.cluster, rebalance_without_poll=mode)
        subscribe("t", not to_pattern)
        await it.enter(first)
        it.cluster.produce("t", ["old"], partition=0)
        it.cluster.produce("new", ["new"])
        await first.unsubscribe()
        await anyio.sleep(pause)
        subscribe("new", to_pattern)
        assert await values(first, 1) == [b"new"]
        assert await first.poll(timeout_ms=1000) == {}
        assert first.assignment() == new
        assert first.subscription() == {"new"}
        assert listener.calls[-1] == ("assigned", new)
        assert ("revoked", BOTH) in listener.calls

    play(scene, t=2, new=1)


# --- max_poll_interval_ms -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_rebalances_do_not_count_as_polls(mode: str) -> None:
    """A member that is not polled leaves after max_poll_interval_ms, and does not rejoin."""

    async def scene(it: Scene) -> None:
        listener = Notes()
        options = {"rebalance_without_poll": mode, "max_poll_interval_ms": 60_000}
        first = await it.start(listener, **options)
        for _ in range(5):
            await anyio.sleep(11)
            first.enforce_rebalance()
        assert it.cluster.group("g").members
        await anyio.sleep(10)
        assert not it.cluster.group("g").members
        calls = list(listener.calls)
        await anyio.sleep(60)
        assert listener.calls == calls, "nothing happens without the caller any more"
        await poll_for(first, lambda: len(listener.calls) == len(calls) + 2)
        assert listener.calls[-2:] == [("lost", BOTH), ("assigned", BOTH)]
        assert it.cluster.group("g").members

    play(scene)


# --- "always" -----------------------------------------------------------------------------------


def test_always_commits_what_is_in_hand_and_gives_way(each_protocol: str) -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b"])
        first = await it.start(rebalance_without_poll="always")
        assert len(await values(first, 2)) == 2
        assert await it.second_starts()
        is_eager = each_protocol == "classic"
        revoked = BOTH if is_eager else BOTH - first.assignment()
        assert set((await first.committed(revoked)).values()) == {1}

    play(scene)


@EACH_PROTOCOL
def test_always_leaves_unfinished_what_is_not_revoked() -> None:
    """Other callbacks, such as on_stats, do not mark returned records as processed."""

    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b"], partition=0)
        calls: list[object] = []
        options = {"on_stats": calls.append, "stats_interval_ms": 100}
        first = it.make(rebalance_without_poll="always", **options)
        with pytest.raises(ZeroDivisionError):
            async with first:
                assert len(await values(first, 2)) == 2
                await anyio.sleep(SOON)
                raise ZeroDivisionError
        assert calls
        async with it.make() as second:
            assert await values(second, 2) == [b"a", b"b"]

    play(scene)


@EACH_PROTOCOL
def test_always_interrupts_iteration_for_the_callbacks() -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["x"] * 400)
        listener = Notes()
        first = await it.start(listener, rebalance_without_poll="always")
        second = it.make(client_id="second", rebalance_without_poll="always")
        seen: list[tuple[int, int]] = []

        async def read(consumer: MemoryConsumer) -> None:
            async for record in consumer:
                assert not listener.running or consumer is second
                seen.append((record.partition, record.offset))
                await anyio.sleep(0.1)

        async def run_second() -> None:
            async with second:
                await read(second)

        it.tasks.start_soon(read, first)
        await anyio.sleep(1)
        it.tasks.start_soon(run_second)
        await it.cluster.wait_until(lambda: len(seen) >= 400, 120)
        assert len(set(seen)) == 400

    play(scene)


# --- callbacks in the consumer's own task -------------------------------------------------------


def test_a_poll_waits_for_a_callback_in_the_consumers_task() -> None:
    async def scene(it: Scene) -> None:
        async def slow(partitions: Partitions) -> None:
            await anyio.sleep(5)

        listener = Notes(revoked=slow, assigned=slow)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: listener.names[-1] == "revoked", SOON)
        assert listener.running
        it.cluster.produce("t", ["a"])
        await values(first, 1)
        assert listener.names == ["assigned", "revoked", "assigned"]
        assert not listener.running
        me = anyio.get_current_task().id
        assert me not in listener.tasks

    play(scene)


def test_callbacks_without_a_poll_may_use_the_consumer() -> None:
    async def scene(it: Scene) -> None:
        it.cluster.produce("t", ["a", "b", "c"], partition=0)
        tp = TopicPartition("t", 0)
        seen: list[Any] = []

        async def revoked(partitions: Partitions) -> None:
            seen.append(await first.position(tp))
            await first.commit({tp: 2})
            with pytest.raises(ReentrantCallError):
                await first.poll()

        async def assigned(partitions: Partitions) -> None:
            seen.append(await first.position(tp))
            first.seek(tp, 1)

        listener = Notes()
        first = await it.start(listener, enable_auto_commit=False)
        assert await first.poll(partitions=[TopicPartition("t", 1)]) == {}
        listener.hooks = {"revoked": revoked, "assigned": assigned}
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: len(seen) == 2, SOON)
        assert seen == [0, 2]
        assert (await anext(first)).value == b"b"

    play(scene)


def test_a_listener_error_is_raised_by_the_next_poll() -> None:
    async def scene(it: Scene) -> None:
        async def fail(partitions: Partitions) -> None:
            raise ZeroDivisionError

        listener = Notes(revoked=fail)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: len(listener.calls) == 3, SOON)
        with pytest.raises(RebalanceListenerError, match="on_partitions_revoked"):
            await first.poll(timeout_ms=1000)
        assert await first.poll() == {}
        assert first.assignment() == BOTH
        listener.hooks = {}

    play(scene)


def test_a_custom_assignor_runs_without_a_poll() -> None:
    tasks: list[int] = []

    class AllToAll(PartitionAssignor):
        name = "all-to-all"

        def assign(
            self, cluster: ClusterTopics, subscriptions: Mapping[str, Subscription]
        ) -> Assignments:
            tasks.append(anyio.get_current_task().id)
            each = sorted(BOTH)
            return {name: each[n : n + 1] for n, name in enumerate(sorted(subscriptions))}

    async def scene(it: Scene) -> None:
        options: dict[str, Any] = {"partition_assignment_strategy": [AllToAll]}
        await it.start(**options)
        assert await it.second_starts(**options)
        assert tasks[-1] != anyio.get_current_task().id

    play(scene)


@pytest.mark.parametrize("cause", ["rebalance", "unsubscribe"])
def test_callbacks_see_the_context_of_start(cause: str) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[str] = []

    async def scene(it: Scene) -> None:
        async def note(partitions: Partitions) -> None:
            seen.append(variable.get())

        variable.set("at start")
        listener = Notes(revoked=note)
        first = await it.start(listener)
        variable.set("later")
        if cause == "unsubscribe":
            await first.unsubscribe()
        else:
            first.enforce_rebalance()
        await it.cluster.wait_until(lambda: seen, SOON)
        assert seen == ["later" if cause == "unsubscribe" else "at start"]
        listener.hooks = {}

    play(scene)


# --- the end ------------------------------------------------------------------------------------


def test_stop_waits_for_a_callback_in_the_consumers_task() -> None:
    async def scene(it: Scene) -> None:
        async def slow(partitions: Partitions) -> None:
            await anyio.sleep(2)

        listener = Notes(revoked=slow)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: listener.running, SOON)
        await first.close()
        assert not listener.running
        assert listener.names == ["assigned", "revoked"]
        assert not it.cluster.group("g").members

    play(scene)


def test_stop_cancels_a_callback_that_does_not_end() -> None:
    async def scene(it: Scene) -> None:
        cancelled = False

        async def hang(partitions: Partitions) -> None:
            nonlocal cancelled
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled = True
                raise

        listener = Notes(revoked=hang)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: listener.running, SOON)
        with anyio.fail_after(5.5):
            await first.close()
        assert cancelled

    play(scene)


@EACH_PROTOCOL
def test_stop_cancels_a_callback_after_two_unsubscribes() -> None:
    async def scene(it: Scene) -> None:
        ended = False

        async def hang(partitions: Partitions) -> None:
            nonlocal ended
            try:
                await anyio.sleep_forever()
            finally:
                ended = True

        listener = Notes(revoked=hang)
        first = await it.start(listener)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.unsubscribe)
            tasks.start_soon(first.unsubscribe)
            await it.cluster.wait_until(lambda: listener.running, SOON)
            await first.close()
        assert ended

    play(scene)


def test_stop_in_a_callback_ends_the_consumer_without_a_poll() -> None:
    async def scene(it: Scene) -> None:
        async def stop(partitions: Partitions) -> None:
            await first.close()

        listener = Notes(revoked=stop)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: first._driver.life.is_closed, SOON)
        assert not it.cluster.group("g").members
        assert listener.names == ["assigned", "revoked"]

    play(scene)


def test_stop_in_a_callback_is_done_when_it_is_cancelled() -> None:
    async def scene(it: Scene) -> None:
        async def stop(partitions: Partitions) -> None:
            await first.close()
            cancelled = asyncio.create_task(asyncio.sleep(60))
            cancelled.cancel()
            await cancelled

        listener = Notes(revoked=stop)
        first = await it.start(listener)
        first.enforce_rebalance()
        await it.cluster.wait_until(lambda: first._driver.life.is_closed, SOON)
        assert not it.cluster.group("g").members
        assert listener.names == ["assigned", "revoked"]

    _backend[-1] = "asyncio"  # on trio only a cancel scope raises Cancelled
    play(scene)


def test_system_exit_in_a_callback_ends_a_trio_program() -> None:
    def leaves(error: BaseException) -> list[BaseException]:
        inner = getattr(error, "exceptions", [])
        return [leaf for each in inner for leaf in leaves(each)] if inner else [error]

    async def main() -> None:
        async def leave(partitions: Partitions) -> None:
            raise SystemExit(3)

        async with MemoryCluster(topics={"t": 2}) as cluster:
            consumer = ClassicConsumer(cluster)
            consumer.subscribe(["t"], listener=Notes(revoked=leave))
            async with consumer:
                consumer.enforce_rebalance()
                await anyio.sleep(2 * SOON)
                raise AssertionError("the program goes on")

    with pytest.raises((SystemExit, BaseExceptionGroup)) as raised:
        run_virtual(main)
    assert [type(error) for error in leaves(raised.value)] == [SystemExit]
