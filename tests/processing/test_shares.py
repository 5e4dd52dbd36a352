"""process() with share consumers: acknowledgements, redelivery, renewals, stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from kohort import AsyncShareConsumer, ShareConsumer, ShareRecord, TopicPartition
from kohort.errors import ConfigurationError
from kohort.processing import DeadLetters, GiveUp, Retry, Skip, context, process
from kohort.processing._commands import Acknowledge
from kohort.processing._core import CoreOptions
from kohort.processing.shares._core import AHEAD, ShareCore
from kohort.testing import Cluster, MemoryCluster
from tests.processing.kit import until
from tests.support.virtual import run_virtual_on

LOCK = 30.0
Record = ShareRecord[Any, Any]
BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Work:
    """A cluster, and a handler that notes value and delivery of each call."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.calls: list[tuple[str, int]] = []
        self.done: list[str] = []
        self.running = self.most = 0
        self.act: Callable[[Record], Awaitable[object]] = self.nothing

    async def nothing(self, record: Record) -> None: ...

    async def handle(self, record: Record) -> None:
        value = (record.value or b"").decode()
        self.calls.append((value, record.delivery_count))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.act(record)
        finally:
            self.running -= 1
        self.done.append(value)

    def configure(self, **configs: str) -> None:
        """Set configs of the group."""
        self.cluster._read(lambda state: state.configs.groups.change("workers", configs))

    def consumer(self, **options: Any) -> AsyncShareConsumer:
        return AsyncShareConsumer(
            "jobs",
            **{
                "bootstrap_servers": self.cluster.bootstrap_servers,
                "connect": self.cluster.connect,
                "group_id": "workers",
                "start": "earliest",
                **options,
            },
        )

    async def process(self, until_done: Callable[[], object], **options: Any) -> None:
        """Process until the condition holds, and then stop."""
        consumer = self.consumer(**options.pop("consumer", {}))
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, self.handle, handle_signals=False, **options)

            tasks.start_soon(run)
            await until(until_done)
            consumer.wakeup()


def on_queue(
    backend: str, scene: Callable[[Work], Awaitable[None]], *values: str, **options: Any
) -> None:
    async def main() -> None:
        options.setdefault("topics", {"jobs": 1})
        async with MemoryCluster(brokers=1, **options) as cluster:
            cluster.produce("jobs", list(values))
            await scene(Work(cluster))

    run_virtual_on(backend, main)


@BACKENDS
def test_a_long_handler_is_called_once_by_renewals(backend: str) -> None:
    async def scene(work: Work) -> None:
        work.act = lambda record: anyio.sleep(3 * LOCK)
        await work.process(lambda: len(work.done) == 1)
        work.act = work.nothing
        work.cluster.produce("jobs", ["b"])
        await work.process(lambda: "b" in work.done)
        assert work.calls == [("a", 1), ("b", 1)]

    on_queue(backend, scene, "a")


@BACKENDS
def test_poison_is_rejected_at_its_last_delivery(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.value == b"poison":
                raise ValueError("no job")

        work.act = act
        with caplog.at_level(logging.WARNING, "kohort.processing"):
            await work.process(lambda: ("poison", 5) in work.calls and len(work.done) == 2)
        await work.process(lambda: True)
        assert [count for value, count in work.calls if value == "poison"] == [1, 2, 3, 4, 5]
        assert sorted(work.done) == ["a", "b"]
        assert "skipped after 1 attempts, because the handler raised ValueError" in caplog.text

    on_queue(backend, scene, "a", "poison", "b")


@BACKENDS
def test_retries_are_in_memory_and_count_as_one_delivery(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.delivery_count < 2 or context.attempt < 3:
                raise OSError

        work.act = act
        await work.process(lambda: work.done, retry=Retry(3, first=20.0))
        assert work.calls == [("a", 1)] * 3 + [("a", 2)] * 3

    on_queue(backend, scene, "a")


@BACKENDS
def test_skip_accepts_and_giving_up_rejects_at_once(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.value == b"skip":
                raise Skip
            if record.value == b"bad":
                raise GiveUp from ValueError("bad")

        work.act = act
        await work.process(lambda: work.done == ["end"], retry=Retry(5), concurrency=1)
        work.cluster.produce("jobs", ["more"])
        await work.process(lambda: "more" in work.done)
        assert work.calls == [("skip", 1), ("bad", 1), ("end", 1), ("more", 1)]

    on_queue(backend, scene, "skip", "bad", "end")


@BACKENDS
def test_concurrency_limits_what_is_acquired(backend: str) -> None:
    async def scene(work: Work) -> None:
        seen: list[int] = []
        consumer = work.consumer()

        async def act(record: Record) -> None:
            await anyio.sleep(1)
            seen.append(consumer.held())

        work.act = act
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, work.handle, concurrency=3, handle_signals=False)

            tasks.start_soon(run)
            await until(lambda: len(work.done) == 20)
            consumer.wakeup()
        assert work.most == max(seen) == 3
        assert len(work.calls) == 20

    on_queue(backend, scene, *map(str, range(20)))


@BACKENDS
def test_quick_handlers_get_records_that_were_acquired_ahead(backend: str) -> None:
    async def scene(work: Work) -> None:
        held: list[int] = []
        consumer = work.consumer()

        async def act(record: Record) -> None:
            await anyio.sleep(0.01)
            held.append(consumer.held())

        work.act = act
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await process(consumer, work.handle, concurrency=2, handle_signals=False)

            tasks.start_soon(run)
            await until(lambda: len(work.done) == 200)
            metrics = consumer.metrics()
            consumer.wakeup()
        assert metrics is not None
        assert work.most == 2 < max(held) <= 2 + 2 * AHEAD
        assert (
            metrics["consumer-share-fetch-manager-metrics"]["fetch-total"] < 60
        )  # and 100 without any ahead

    on_queue(backend, scene, *map(str, range(200)))


def queued(offset: int, deliveries: int = 1) -> Any:
    return SimpleNamespace(
        topic="jobs",
        partition=0,
        offset=offset,
        delivery_count=deliveries,
        lock_deadline=LOCK,
        is_lost=False,
    )


def core_of(records: list[Any], slots: int = 1, **options: Any) -> ShareCore:
    def has_lost(record: Any) -> bool:
        return bool(record.is_lost)

    core = ShareCore(CoreOptions(order="none", **options), 3600.0, slots, has_lost)
    core.delivery_limit = 5
    core.records(TopicPartition("jobs", 0), records, 0.0)
    return core


def acknowledged(core: ShareCore) -> list[tuple[int, str]]:
    commands: list[Any] = list(core.commands)
    return [(each.load.offset, each.type) for each in commands]


def test_nothing_is_acquired_ahead_of_slow_handlers() -> None:
    for seconds, room in ((0.1, 1), (1.0, 0)):
        core = core_of([queued(0), queued(1)])
        lane = core.take()
        assert lane is not None
        assert core.done(lane) is not None  # the other record takes the slot
        core.tick(seconds, seconds)
        assert core.room() == room


def test_a_stop_handles_what_the_group_would_archive() -> None:
    core = core_of([queued(0), queued(1), queued(2, deliveries=5)])
    lane = core.take()
    core.stop()
    assert acknowledged(core) == [(1, "release")]
    assert lane is not None
    following = core.done(lane)
    assert following is not None
    assert following.load.offset == 2


def test_a_drain_waits_for_what_a_stop_has_kept() -> None:
    core = core_of([queued(0, deliveries=5)])
    core.stop()
    core.records(TopicPartition("jobs", 0), [queued(1), queued(2, deliveries=5)], 0.0)
    assert acknowledged(core) == [(1, "release")]
    assert not core.is_drained()
    lane = core.take()
    assert lane is not None
    following = core.done(lane)
    assert not core.is_drained()
    assert following is not None
    core.done(following)
    assert core.is_drained()


def test_a_drain_retries_no_record_and_gives_the_last_failure_to_the_policy() -> None:
    core = core_of(
        [queued(0), queued(1, deliveries=5)],
        slots=2,
        retries=(Retry(3, first=60.0),),
        failed="call",
    )
    first, last = core.take(), core.take()
    assert first is not None
    assert last is not None
    core.stop()
    assert core.failed(first, ValueError(), 1.0) is None
    assert core.failed(last, ValueError(), 1.0) is last
    assert last.error is not None
    core.failed(last, OSError(), 1.0)  # the policy
    assert not core.is_drained()
    core.tick(3.0, 3.0)
    assert core.take() is last
    core.done(last)
    assert core.is_drained()
    acknowledgements = [each for each in core.commands if isinstance(each, Acknowledge)]
    assert [(each.load.offset, each.type) for each in acknowledgements] == [
        (0, "release"),
        (1, "reject"),
    ]


def test_a_drain_learns_that_a_record_has_slept_when_no_slot_is_left() -> None:
    core = core_of([queued(0, deliveries=5), queued(1, deliveries=5)], failed="call")
    last = core.take()
    assert last is not None
    assert core.failed(last, ValueError(), 0.0) is last
    core.stop()
    stuck = core.failed(last, OSError(), 0.0)  # the policy, which comes again later
    assert stuck is not None
    stuck.started = -3600.0
    core.tick(0.1, 0.1)
    assert core.given_up() == 1
    core.has_news = False
    assert not core.is_drained()
    core.tick(3.0, 3.0)
    assert core.is_drained()
    assert core.has_news


def test_a_stop_retries_at_once_what_the_group_would_archive() -> None:
    core = core_of([queued(0), queued(1, deliveries=5)], retries=(Retry(3, first=60.0),))
    lane = core.take()
    while lane is not None:
        lane = core.failed(lane, ValueError(), 0.0)
    core.commands.clear()
    core.stop()
    assert acknowledged(core) == [(0, "release")]
    assert not core.is_drained()
    lane = core.take()
    assert lane is not None
    assert (lane.load.offset, lane.attempt) == (1, 2)
    core.tick(100.0, 100.0)
    assert not core.ready  # the end of the pause means nothing


@BACKENDS
def test_a_failure_in_the_drain_of_a_last_delivery_is_final(backend: str) -> None:
    async def scene(work: Work) -> None:
        failed: list[tuple[Any, int]] = []

        async def act(record: Record) -> None:
            await anyio.sleep(5)
            raise OSError if record.delivery_count == 5 else ValueError

        async def bury(record: Any, error: Exception, attempts: int) -> None:
            failed.append((record.value, attempts))
            if len(failed) == 1:
                raise ConnectionError

        work.act = act
        retry = Retry(3, first=60.0, on=OSError)
        await work.process(lambda: ("a", 5) in work.calls, retry=retry, failed=bury)
        assert failed == [(b"a", 1)] * 2
        assert [count for _, count in work.calls] == [1, 2, 3, 4, 5]

    on_queue(backend, scene, "a")


def test_only_what_comes_again_is_released_after_half_of_its_lock() -> None:
    core = core_of([queued(0), queued(1, deliveries=5)])
    core.tick(0.6 * LOCK, 0.0)
    assert acknowledged(core) == [(0, "release"), (1, "renew")]


@BACKENDS
def test_a_last_delivery_that_comes_after_its_poll_is_handled(backend: str) -> None:
    async def scene(work: Work) -> None:
        work.configure(**{"share.delivery.count.limit": "2"})

        async def act(record: Record) -> None:
            if record.value == b"long":
                tasks.start_soon(release)
                await anyio.sleep(2 * LOCK)

        async def release() -> None:
            await anyio.sleep(3)  # the poll has ended, and its fetch waits at the leader
            member.release(last)
            await member.commit()

        work.act = act
        async with work.consumer(acknowledgement="explicit") as member:
            (last,) = (await member.poll(timeout_ms=60_000))[TopicPartition("jobs", 0)]
            work.cluster.produce("jobs", [*"abcd", "long"])
            async with anyio.create_task_group() as tasks:
                await work.process(
                    lambda: "last" in work.done,
                    concurrency=1,
                    consumer={"fetch_max_wait_ms": 5_000},
                )
        assert work.calls == [*((value, 1) for value in [*"abcd", "long"]), ("last", 2)]

    on_queue(backend, scene, "last", share_release_wakes=True)


@BACKENDS
def test_a_second_wakeup_ends_the_drain(backend: str) -> None:
    async def scene(work: Work) -> None:
        work.act = lambda record: anyio.sleep(1000)
        consumer = work.consumer()

        async def run() -> None:
            await process(consumer, work.handle, handle_signals=False, drain=500)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: work.calls)
            consumer.wakeup()
            await anyio.sleep(5)
            assert work.running == 1
            began = anyio.current_time()
            consumer.wakeup()
        assert anyio.current_time() - began < 5

    on_queue(backend, scene, "a")


def test_lost_records_are_handled_in_their_last_delivery_only() -> None:
    records = [queued(0), queued(1), queued(2, deliveries=5), queued(3)]
    core = core_of(records)
    lane = core.take()
    for record in records:
        record.is_lost = True
    assert lane is not None
    following = core.done(lane)
    assert following is not None
    assert following.load.offset == 2
    assert core.done(following) is None
    assert acknowledged(core) == [(0, "accept"), (2, "accept")]
    assert core.occupied() == 0


def test_lost_records_make_room_and_are_not_renewed() -> None:
    records = [queued(0), queued(1)]
    core = core_of(records, slots=2, retries=(Retry(2, first=20.0),))
    lane = core.take()
    assert lane is not None
    following = core.failed(lane, ValueError(), 0.0)
    for record in records:
        record.is_lost = True
    core.commands.clear()
    core.tick(0.6 * LOCK, 0.0)
    assert not core.commands
    assert core.room() == 1
    assert core.running == {following}


@BACKENDS
def test_a_lost_session_gives_what_waits_no_call_in_vain(backend: str) -> None:
    async def scene(work: Work) -> None:
        waiting = ["1", "2", "3", "4"]

        async def act(record: Record) -> None:
            if record.value == b"quick":  # so the next ones are locked ahead
                work.cluster.produce("jobs", ["long", *waiting])
            elif record.value == b"long" and "long" not in work.done:
                await anyio.sleep(10)
                work.cluster.kill_broker(1)
                work.cluster.start_broker(1)
            else:
                await anyio.sleep(0.4 if work.calls[-1][0] in waiting else 0.01)

        work.act = act
        await work.process(lambda: {*waiting} <= {*work.done}, concurrency=1)
        calls = [value for value, _ in work.calls if value in waiting]
        assert calls.count("1") == 2  # it began before the next request
        assert sorted(calls) == sorted(["1", *waiting])

    on_queue(backend, scene, *"abcdefgh", "quick")


@BACKENDS
def test_a_lost_session_leaves_later_renewals(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.delivery_count == 1:
                await anyio.sleep(0.4 * LOCK)
                work.cluster.disconnect("ShareFetch", times=1)
            await anyio.sleep(3 * LOCK)

        work.act = act
        await work.process(lambda: len(work.done) == 2)
        assert work.calls == [("a", 1), ("a", 2)]
        assert "refuse to renew" not in caplog.text

    on_queue(backend, scene, "a")


@BACKENDS
def test_refused_renewals_are_logged_once(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(work: Work) -> None:
        configs = {"renew.acknowledge.enable": "false", "record.lock.duration.ms": "15000"}
        work.configure(**{f"share.{name}": value for name, value in configs.items()})
        work.act = lambda record: anyio.sleep(2 * LOCK if record.delivery_count == 1 else 0)
        await work.process(lambda: len(work.done) == 4)
        assert sorted(work.calls) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        refused = [each for each in caplog.messages if "refuse to renew" in each]
        assert len(refused) == 1
        assert "share.renew.acknowledge.enable=false" in refused[0]
        assert "a lock, which is 15 s" in refused[0]
        assert "is not enabled" not in caplog.text  # no broker was asked

    caplog.set_level(logging.INFO, "kohort")
    on_queue(backend, scene, "a", "b")


def test_a_record_that_was_put_back_has_not_begun() -> None:
    core = core_of([queued(0)])
    lane = core.take()
    assert lane is not None
    core.put_back(lane)
    core.tick(0.6 * LOCK, 0.0)
    assert acknowledged(core) == [(0, "release")]


@BACKENDS
def test_records_of_all_leaders_are_handled(backend: str) -> None:
    async def scene(work: Work) -> None:
        for partition in range(6):
            work.cluster.produce("jobs", ["x"] * 3, partition=partition)
        work.act = lambda record: anyio.sleep(1)
        await work.process(lambda: len(work.done) == 18, concurrency=2)
        assert work.most == 2
        assert len(work.calls) == 18

    async def main() -> None:
        async with MemoryCluster(topics={"jobs": 6}, brokers=3) as cluster:
            await scene(Work(cluster))

    run_virtual_on(backend, main)


@BACKENDS
def test_a_stop_drains_and_releases_the_rest(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            await anyio.sleep(5 if record.value == b"short" else 1000)

        work.act = act
        await work.process(lambda: len(work.calls) == 2, drain=10)
        assert work.done == ["short"]
        work.act = work.nothing
        began = anyio.current_time()
        await work.process(lambda: "long" in work.done)
        assert anyio.current_time() - began < 15  # no lock has to expire
        assert sorted(work.calls) == [("long", 1), ("long", 2), ("short", 1)]

    on_queue(backend, scene, "short", "long")


@BACKENDS
def test_a_handler_ends_after_max_runtime(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            if record.delivery_count == 1:
                await anyio.sleep_forever()

        work.act = act
        await work.process(lambda: work.done, max_runtime=100.0)
        assert work.calls == [("a", 1), ("a", 2)]
        assert "has not returned for 10" in caplog.text

    on_queue(backend, scene, "a")


@BACKENDS
def test_dead_letters_have_the_bytes_and_the_delivery_count(backend: str) -> None:
    async def scene(work: Work) -> None:
        async def act(record: Record) -> None:
            raise ValueError("no job")

        work.act = act
        await work.process(
            lambda: len(work.cluster.records("letters")) == 1,
            failed=DeadLetters("letters"),
            consumer={"value_deserializer": bytes.upper},
        )
        (letter,) = work.cluster.records("letters")
        headers = dict(letter.headers)
        assert letter.value == b"a"
        assert headers["__dlq.errors.delivery.count"] == b"5"
        assert headers["__dlq.errors.group"] == b"workers"

    on_queue(backend, scene, "a", topics={"jobs": 1, "letters": 1})


def test_options_of_consumer_groups_are_refused() -> None:
    consumer = ShareConsumer("jobs", group_id="workers")
    with pytest.raises(ConfigurationError, match="a share group has no order"):
        process(consumer, print, order="key")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"process\(delay=...\) is not possible"):
        process(consumer, print, delay=1.0)  # type: ignore[call-overload]


def test_windows_and_wrong_handlers_are_refused_by_the_name_of_the_consumer() -> None:
    async def coroutine(record: Record) -> None: ...

    consumer = ShareConsumer("jobs", group_id="workers")
    with pytest.raises(ConfigurationError, match=r"process\(window=...\) is not possible"):
        process(consumer, print, window=10)  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match=r"with ShareConsumer needs .* AsyncShareConsumer"):
        process(consumer, coroutine)  # type: ignore[arg-type]


def test_threads_that_hang_in_all_slots_are_told_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []
    states: list[tuple[bool, bool]] = []
    hung, ended = threading.Event(), threading.Event()
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a", "b"])
        consumer = ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        )

        def handler(record: Record) -> None:
            hung.wait(200)

        def look() -> None:
            health = consumer.health()
            while not any("all 2 slots" in each for each in health.reasons):
                if ended.wait(0.02):
                    return
                health = consumer.health()
            told.extend([*health.reasons, *consumer.explain().reasons])
            states.append((health.live, health.ready))
            consumer.wakeup()

        looker = threading.Thread(target=look)
        looker.start()
        process(consumer, handler, concurrency=2, max_runtime=0.2, drain=280)
        has_waited = hung.is_set()
        ended.set()
        hung.set()
        looker.join()
    assert not has_waited
    assert states == [(True, False)]
    assert sum("all 2 slots are held by handlers that do not return" in each for each in told) == 2
    assert "2 of 2 slots are held" in caplog.text
    assert "max_runtime is 0.2 s" in caplog.text


@BACKENDS
def test_coroutines_that_hold_all_slots_are_reported(backend: str) -> None:
    async def scene(work: Work) -> None:
        release = anyio.Event()
        consumer = work.consumer()

        async def act(record: Record) -> None:
            with anyio.CancelScope(shield=True):
                await release.wait()

        def is_held() -> bool:
            health = consumer.health()
            reasons = [*health.reasons, *consumer.explain().reasons]
            held = [each for each in reasons if "all 2 slots are held by handlers" in each]
            assert len(held) in (0, 2)
            assert all("let each handler end when it is cancelled" in each for each in held)
            assert (health.live, health.ready) == (True, not held)
            return bool(held)

        async def run() -> None:
            await process(
                consumer, work.handle, handle_signals=False, concurrency=2, max_runtime=10.0
            )

        work.act = act
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await until(lambda: work.running == 2)
            assert not is_held()
            await anyio.sleep(12)
            assert is_held()
            release.set()
            await until(lambda: not is_held())
            consumer.wakeup()

    on_queue(backend, scene, "a", "b")


def test_threads_handle_a_queue() -> None:
    calls: list[tuple[Any, int]] = []
    finished = threading.Event()
    with Cluster(topics={"jobs": 2}, share_lock_ms=15_000) as cluster:
        cluster.produce("jobs", ["a", "poison", "long"])
        consumer = ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        )

        def handler(record: Record) -> None:
            calls.append((record.value, record.delivery_count))
            if record.value == b"poison":
                if record.delivery_count == 5:
                    finished.set()
                raise ValueError
            if record.value == b"long":
                finished.wait(50)

        def stop() -> None:
            finished.wait(50)
            consumer.wakeup()

        stopper = threading.Thread(target=stop)
        stopper.start()
        process(consumer, handler, concurrency=3)
        stopper.join()
    assert sorted(calls) == [
        (b"a", 1),
        (b"long", 1),
        *((b"poison", count) for count in range(1, 6)),
    ]
