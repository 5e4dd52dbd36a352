"""The end of a KafkaConsumer: closed in order, in time, by a signal, or not at all."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.consumer.driver import _greenlet
from kohort.consumer.driver._greenlet import make_consumer_thread
from kohort.consumer.driver._life import ConsumerState
from kohort.consumer.driver._thread import ConsumerThread
from kohort.errors import (
    ConsumerClosedError,
    ForkedConsumerError,
    IllegalStateError,
    KafkaError,
)
from kohort.testing import Cluster
from tests.consumer import servers
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Recorder, kohort_threads, once_waiting, poll_until, read, values


@pytest.fixture(params=["classic", "consumer"])
def group_protocol(request: pytest.FixtureRequest) -> str:
    """Both protocols. What a test does without a group is the same under both."""
    return str(request.param)


def test_close_leaves_nothing_behind(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"])
    # Sockets and threads of earlier tests may end during this test.
    sockets, threads = open_sockets(), set(threading.enumerate())
    consumer = make(topic, group_id=group)
    read(consumer, 1)
    assert open_sockets() - sockets
    consumer.close()
    assert set(threading.enumerate()) <= threads
    cluster.wait_until(lambda: open_sockets() <= sockets)


def open_sockets() -> set[str]:
    """Return the sockets of this process, the cluster's ends included."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


PATIENT = {"request_timeout_ms": 300_000, "bootstrap_timeout_ms": 300_000}
"""Options of a consumer whose close() would take longer than a test allows, if it had no limit."""


def close_in_time(consumer: KafkaConsumer, seconds: float = 5.0) -> None:
    begun = time.monotonic()
    consumer.close()
    assert time.monotonic() - begun < seconds + 60
    assert not kohort_threads()


@pytest.mark.cases(1)  # each waits for a timeout
def test_close_with_a_silent_cluster_is_bounded(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"])
    consumer = make(topic, group_id=group, **PATIENT)
    read(consumer, 1)
    with cluster.network_partition():
        consumer.commit_async()
        close_in_time(consumer)


def test_close_takes_no_longer_than_it_is_told(
    cluster: Cluster,
    topic: str,
    group: str,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kohort.consumer.api._sync.CLOSE_TIMEOUT", 300.0)
    cluster.produce(topic, [b"a"])
    listener = Recorder()
    consumer = make(group_id=group, **PATIENT)
    consumer.subscribe([topic], listener=listener)
    read(consumer, 1)
    with cluster.network_partition():
        begun = time.monotonic()
        consumer.close(timeout_ms=200)
        assert time.monotonic() - begun < 90, "without the limit it takes 5 minutes"
    assert listener.names == ["assigned", "revoked"]


@pytest.mark.cases(1)  # each waits for a timeout
def test_a_commit_in_a_listener_does_not_hold_up_close(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    def commit(partitions: Any) -> None:
        try:
            consumer.commit({TopicPartition(topic, 0): 1})
        except Exception as error:
            errors.append(error)

    errors: list[Exception] = []
    consumer = make(group_id=group, **PATIENT)
    consumer.subscribe([topic], listener=Recorder(revoked=commit))
    poll_until(consumer, consumer.assignment)
    with cluster.network_partition():
        close_in_time(consumer)
    assert len(errors) == 1


@pytest.mark.cases(1)  # each waits for a timeout
def test_close_with_a_dead_cluster_is_bounded(make: MakeConsumer) -> None:
    with Cluster(topics={"orders": 1}) as cluster:
        servers = cluster.bootstrap_servers
        consumer = make("orders", group_id="g", bootstrap_servers=servers, **PATIENT)
        poll_until(consumer, consumer.assignment)
    close_in_time(consumer)


def test_close_before_any_contact_is_quick(make: MakeConsumer) -> None:
    with servers.server(None) as address:
        consumer = make("orders", group_id="g", bootstrap_servers=address, **PATIENT)
        consumer.poll(50)
        close_in_time(consumer, 1)


def test_close_in_the_midst_of_a_rebalance_is_quick(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, group_protocol: str
) -> None:
    waiting = {"classic": "PreparingRebalance", "consumer": "Reconciling"}[group_protocol]
    idle = make(topic, group_id=group)
    poll_until(idle, idle.assignment)
    joining = make(topic, group_id=group)
    joining.poll(50)
    cluster.wait_until(lambda: cluster.group(group).state == waiting)
    joining.close(timeout_ms=1_000)
    close_in_time(idle, 1)
    assert not cluster.group(group).members


def test_closing_deserializers_comes_last_and_hurts_nobody(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    class Deserializer:
        closed = 0

        def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:
            return data

        def close(self) -> None:
            Deserializer.closed += 1
            raise ZeroDivisionError

    consumer = make(topic, key_deserializer=Deserializer(), value_deserializer=Deserializer())
    consumer.poll()
    consumer.close()
    assert Deserializer.closed == 2


def test_close_in_a_signal_handler_is_done_when_poll_returns(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group)
    poll_until(consumer, consumer.assignment)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    thread = once_waiting(consumer, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        assert consumer.poll(timeout_ms=29_000) == {}
        assert consumer._driver.life.is_closed
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ConsumerClosedError):
        consumer.poll()
    assert not cluster.group(group).members


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_close_during_the_start_is_a_clear_error(
    cluster: Cluster,
    topic: str,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
    elsewhere: bool,
) -> None:
    consumer, start = make(topic), ConsumerThread.start

    def close() -> None:
        if elsewhere:
            thread = threading.Thread(target=consumer.close, kwargs={"timeout_ms": 300})
            thread.start()
            thread.join()
        else:
            consumer.close(timeout_ms=300)  # as a signal handler does

    def close_and_start(thread: ConsumerThread) -> None:
        if before:
            close()
        start(thread)
        if not before:
            close()

    monkeypatch.setattr(ConsumerThread, "start", close_and_start)
    with pytest.raises(ConsumerClosedError, match="Create a new one"):
        consumer.poll()
    assert consumer._driver.life.is_closed
    cluster.wait_until(lambda: not kohort_threads())


def test_close_before_the_thread_is_stored_ends_the_thread(
    cluster: Cluster, topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer: KafkaConsumer = make(topic)
    getpid = os.getpid

    def close_once() -> int:
        driver = consumer._driver
        if driver.life.state is ConsumerState.STARTING and driver.thread is None:
            monkeypatch.setattr(os, "getpid", getpid)
            consumer.close()
        return getpid()

    monkeypatch.setattr(os, "getpid", close_once)
    with pytest.raises(ConsumerClosedError):
        consumer.poll()
    assert consumer._driver.life.is_closed
    cluster.wait_until(lambda: not kohort_threads())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_close_before_the_start_is_a_clear_error(
    cluster: Cluster,
    topic: str,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: bool,
) -> None:
    consumer: KafkaConsumer = make(topic)
    loops: list[asyncio.AbstractEventLoop] = []

    def close_and_make(*given: Any) -> ConsumerThread:
        thread = make_consumer_thread(*given)
        loops.append(thread._loop)
        if elsewhere:
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join()
        else:
            consumer.close()  # as a signal handler does
        return thread

    monkeypatch.setattr(_greenlet, "make_consumer_thread", close_and_make)
    with pytest.raises(ConsumerClosedError, match="Create a new one"):
        consumer.poll()
    assert consumer._driver.life.is_closed
    assert [loop.is_closed() for loop in loops] == [True]
    cluster.wait_until(lambda: not kohort_threads())


def test_close_ends_a_thread_that_starts_meanwhile(
    cluster: Cluster, topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer: KafkaConsumer = make(topic)
    move = consumer._driver.life.move

    def call() -> None:
        with suppress(KafkaError):  # it depends on the step of the call at which close() comes
            consumer.topics()

    calling = threading.Thread(target=call)

    def start_and_move(to: ConsumerState, **options: Any) -> None:
        if to is ConsumerState.CLOSING:
            calling.start()
            cluster.wait_until(lambda: consumer._driver.thread is not None)
        move(to, **options)

    monkeypatch.setattr(consumer._driver.life, "move", start_and_move)
    consumer.close()
    calling.join(60)
    assert not calling.is_alive()
    assert consumer._driver.life.is_closed
    cluster.wait_until(lambda: not kohort_threads())


@pytest.mark.parametrize("elsewhere", [False, True])
def test_two_first_calls_start_one_thread(
    cluster: Cluster,
    topic: str,
    make: MakeConsumer,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: bool,
) -> None:
    """The second one comes from another thread or from a signal handler."""
    consumer: KafkaConsumer = make(topic, client_id="called-twice")
    found: list[set[str]] = []

    def call_and_make(*given: Any) -> ConsumerThread:
        monkeypatch.setattr(_greenlet, "make_consumer_thread", make_consumer_thread)
        thread = make_consumer_thread(*given)
        if elsewhere:
            calling = threading.Thread(target=lambda: found.append(consumer.topics()))
            calling.start()
            calling.join()
        else:
            found.append(consumer.topics())
        return thread

    monkeypatch.setattr(_greenlet, "make_consumer_thread", call_and_make)
    found.append(consumer.topics())
    assert [topic in topics for topics in found] == [True, True]
    names = [thread.name for thread in kohort_threads()]
    assert names.count("kohort-heartbeat-called-twice") == 1
    consumer.close()
    cluster.wait_until(lambda: not kohort_threads())


def test_stop_is_bounded_while_a_future_is_locked() -> None:
    """An interrupt in a method of a future may leave the lock of the future acquired."""

    class Idle:
        async def run(self, started: Callable[[], None]) -> None:
            started()
            await asyncio.sleep(60)

    class Locked(Future[None]):
        def set_running_or_notify_cancel(self) -> bool:
            entered.set()
            assert unlocked.wait(60)
            return super().set_running_or_notify_cancel()

    entered, unlocked = threading.Event(), threading.Event()
    ended: list[bool] = []
    thread = ConsumerThread(Idle(), "locked")
    thread.start()
    try:
        thread.call_into(Locked(), lambda: asyncio.sleep(0))
        assert entered.wait(60)
        stopping = threading.Thread(target=lambda: ended.append(thread.stop(0.1)), daemon=True)
        stopping.start()
        stopping.join(60)
        assert ended == [False]
    finally:
        unlocked.set()
    assert thread.stop(20)


def test_one_thread_at_a_time(topic: str, make: MakeConsumer) -> None:
    consumer = make(topic)
    consumer.poll()
    inside, outcome = threading.Event(), []

    class Signalling(Recorder):
        def on_partitions_assigned(self, assigned: Any) -> None:
            inside.set()
            finish.wait(60)

    finish = threading.Event()
    consumer.close()
    consumer = make(group_id=f"{topic}-g")
    consumer.subscribe([topic], listener=Signalling())

    def poll() -> None:
        while not inside.is_set():
            consumer.poll(100)
        outcome.append("done")

    thread = threading.Thread(target=poll)
    thread.start()
    inside.wait(60)
    calls: list[Callable[[], object]] = [
        consumer.poll,
        consumer.unsubscribe,
        consumer.close,
        lambda: next(consumer),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="another thread"):
            call()
    finish.set()
    thread.join()
    assert outcome == ["done"]
    consumer.poll()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_is_refused_and_its_parent_continues(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group)
    poll_until(consumer, consumer.assignment)
    generation = cluster.group(group).generation
    child = os.fork()
    if not child:
        refused = 0
        calls: list[Callable[[], object]] = [
            consumer.poll,
            consumer.assignment,
            consumer.paused,
            consumer.metrics,
            consumer.group_metadata,
            consumer.subscription,
            consumer.bootstrap_connected,
        ]
        try:
            for call in calls:
                try:
                    call()
                except ForkedConsumerError as error:
                    refused += "Create a new consumer" in str(error)
            consumer.close()
        finally:
            os._exit(0 if refused == len(calls) else 1)
    assert os.waitpid(child, 0)[1] == 0
    cluster.produce(topic, [b"for the parent"])
    assert values(read(consumer, 1)) == [b"for the parent"]
    assert cluster.group(group).generation == generation


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_consumer_cannot_be_copied(make: MakeConsumer, duplicate: Any) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied: it owns connections"):
        duplicate(make("orders"))


def test_one_that_nobody_closes_warns_and_its_thread_ends(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any]
) -> None:
    consumer = KafkaConsumer(group_id=group, **options)
    listener = Recorder()
    listener.hooks["consumer"] = consumer.assign  # a bound method, as listeners that commit have
    consumer.subscribe([topic], listener=listener)
    poll_until(consumer, consumer.assignment)
    (thread,) = kohort_threads()
    with pytest.warns(ResourceWarning, match="KafkaConsumer was not closed"):
        del consumer, listener
        collect_until_ended(thread)
    assert not thread.is_alive()


def collect_until_ended(thread: threading.Thread, seconds: float = 10.0) -> None:
    """Run the collector until the thread has ended. The thread may use the consumer meanwhile."""
    deadline = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < deadline:
        gc.collect()
        thread.join(0.05)


def test_abandoned_consumer_ends_thread_if_warnings_are_errors(
    topic: str, group: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: raised.append(hook.exc_value))
    consumer = KafkaConsumer(topic, group_id=group, **options)
    poll_until(consumer, consumer.assignment)
    (thread,) = kohort_threads()
    del consumer
    collect_until_ended(thread)
    assert not thread.is_alive()
    assert [type(each) for each in raised] == [ResourceWarning]


def test_one_that_never_did_anything_needs_no_close(options: dict[str, Any]) -> None:
    KafkaConsumer("orders", **options)
    gc.collect()  # and there is no warning


def test_it_works_inside_of_a_running_event_loop(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"])

    async def cell() -> list[Any]:
        with make(topic) as consumer:
            return values(read(consumer, 1))

    assert asyncio.run(cell()) == [b"a"]


def test_the_end_of_the_core_is_an_error_and_not_silence(
    topic: str, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = make(topic)
    consumer.bootstrap()

    async def fail() -> None:
        raise ZeroDivisionError

    consumer._driver.engine._topics._apply_subscription = fail  # type: ignore[method-assign]
    consumer.subscribe([topic])
    with pytest.raises(IllegalStateError, match="create a new one") as raised:
        consumer.poll(timeout_ms=10_000)
    assert raised.value.__cause__ is not None
    with pytest.raises(IllegalStateError):
        consumer.poll()
    close_in_time(consumer, 0)
    assert "internal error in kohort" in caplog.text
