"""Calls of a consumer end in time when its thread or task is blocked or has ended."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.consumer.driver import _thread, _thread_driver
from kohort.errors import IllegalStateError, KafkaTimeoutError, ThreadStartError
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import kohort_threads, poll_until, read

REQUEST_S = 0.4
CLOSE_S = 1.0
PATIENCE_S = 90.0
"""Seconds until a blocked thread is released, so that a call without a limit fails."""
UNLIMITED_S = 300.0
"""Limit for close() that another one must replace."""

# Its first import takes seconds on a busy machine, and must not count as a late call.
pytest.importorskip("pyarrow")

Call = Callable[[KafkaConsumer, TopicPartition], object]

WAITING: dict[str, Call] = {
    "beginning_offsets": lambda c, tp: c.beginning_offsets([tp]),
    "bootstrap": lambda c, tp: c.bootstrap(timeout_ms=400, refresh=True),
    "commit": lambda c, tp: c.commit({tp: 1}),
    "committed": lambda c, tp: c.committed(tp),
    "end_offsets": lambda c, tp: c.end_offsets([tp]),
    "offsets_for_times": lambda c, tp: c.offsets_for_times({tp: 0}),
    "partitions_for_topic": lambda c, tp: c.partitions_for_topic("another"),
    "seek_to_committed": lambda c, tp: c.seek_to_committed(tp),
    "topic_ids": lambda c, tp: c.topic_ids([tp.topic]),
    "topics": lambda c, tp: c.topics(),
}
"""Methods that need the consumer thread. They raise if it does not run."""

POLLING: dict[str, Call] = {
    "__next__": lambda c, tp: next(c, None),
    "poll": lambda c, tp: c.poll(timeout_ms=200),
    "poll_arrow": lambda c, tp: c.poll_arrow(timeout_ms=200),
    "poll_batches": lambda c, tp: c.poll_batches(timeout_ms=200),
}
"""Methods that return no records while the thread is blocked, and raise if it has ended.
"""

OTHERS: dict[str, Call] = {
    "assign": lambda c, tp: c.assign([tp]),
    "assignment": lambda c, tp: c.assignment(),
    "bootstrap_connected": lambda c, tp: c.bootstrap_connected(),
    "close": lambda c, tp: c.close(timeout_ms=1000 * CLOSE_S),
    "commit_async": lambda c, tp: c.commit_async({tp: 1}),
    "enforce_rebalance": lambda c, tp: c.enforce_rebalance(),
    "explain": lambda c, tp: str(c.explain()),
    "group_metadata": lambda c, tp: c.group_metadata(),
    "health": lambda c, tp: c.health(),
    "highwater": lambda c, tp: c.highwater(tp),
    "known_partitions": lambda c, tp: c.known_partitions(tp.topic),
    "lag": lambda c, tp: c.lag(),
    "last_poll_timestamp": lambda c, tp: c.last_poll_timestamp(tp),
    "last_stable_offset": lambda c, tp: c.last_stable_offset(tp),
    "metric_samples": lambda c, tp: c.metric_samples(),
    "metrics": lambda c, tp: c.metrics(),
    "pause": lambda c, tp: c.pause(tp),
    "paused": lambda c, tp: c.paused(),
    "position": lambda c, tp: c.position(tp),
    "positions": lambda c, tp: c.positions(),
    "resume": lambda c, tp: c.resume(tp),
    "seek": lambda c, tp: c.seek(tp, 0),
    "seek_to_beginning": lambda c, tp: c.seek_to_beginning(),
    "seek_to_end": lambda c, tp: c.seek_to_end(),
    "start": lambda c, tp: c.start(),
    "subscribe": lambda c, tp: c.subscribe([tp.topic]),
    "subscription": lambda c, tp: c.subscription(),
    "unsubscribe": lambda c, tp: c.unsubscribe(),
    "wakeup": lambda c, tp: c.wakeup(),
}
"""Methods that do not need the thread. They return, or raise for another reason."""

CALLS = WAITING | POLLING | OTHERS


def call(name: str, consumer: KafkaConsumer, tp: TopicPartition) -> None:
    """Call a method. Some of OTHERS have other reasons to raise."""
    if name in OTHERS:
        with suppress(IllegalStateError, KafkaTimeoutError):
            CALLS[name](consumer, tp)
    else:
        CALLS[name](consumer, tp)


OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 1000 * REQUEST_S,
    "consumer_timeout_ms": 200,
    "enable_auto_commit": True,
}


def test_every_public_method_is_in_the_tables() -> None:
    found = {
        name
        for name, member in inspect.getmembers(KafkaConsumer, callable)
        if not name.startswith("_") and name != "from_properties"
    }
    assert found | {"__next__"} == CALLS.keys()


@contextmanager
def blocked(consumer: KafkaConsumer) -> Iterator[threading.Event]:
    """Block the thread's event loop. The event is set if the block had to be released."""
    gate, reached, late = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        reached.set()
        if not gate.wait(PATIENCE_S):
            late.set()

    thread = consumer._driver.running_thread()
    thread.call_soon(block)
    assert reached.wait(PATIENCE_S)
    try:
        yield late
    finally:
        gate.set()
        if consumer._driver.life.is_closed:
            thread._thread.join(PATIENCE_S)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread_driver, "OVERRUN_SECONDS", 0.2)
    monkeypatch.setattr(_thread_driver, "CLOSE_TIMEOUT", CLOSE_S)
    monkeypatch.setattr("kohort.consumer.api._sync.CLOSE_TIMEOUT", CLOSE_S)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("quick")
def test_call_ends_in_time_when_the_core_is_blocked(
    topic: str, group: str, make: MakeConsumer, name: str
) -> None:
    tp = TopicPartition(topic, 0)
    consumer = make(topic, group_id=group, **OPTIONS)
    poll_until(consumer, lambda: tp in consumer.assignment())
    with blocked(consumer) as late:
        if name in WAITING:
            with pytest.raises(KafkaTimeoutError, match="thread did not respond"):
                CALLS[name](consumer, tp)
        else:
            call(name, consumer, tp)
        assert not late.is_set()


@pytest.mark.usefixtures("quick")
def test_close_ends_pending_commits_when_the_core_is_blocked(
    topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group, **OPTIONS)
    poll_until(consumer, consumer.assignment)
    with blocked(consumer) as late:
        future: Future[None] = consumer.commit_async({TopicPartition(topic, 0): 1})
        consumer.close(timeout_ms=100)
        with pytest.raises(IllegalStateError):
            future.result(timeout=PATIENCE_S)
        assert not late.is_set()


@pytest.mark.parametrize("wait", ["result", "exception"])
@pytest.mark.usefixtures("quick")
def test_commit_future_raises_in_time_when_the_core_is_blocked(
    topic: str, group: str, make: MakeConsumer, wait: str
) -> None:
    consumer = make(topic, group_id=group, **OPTIONS)
    poll_until(consumer, consumer.assignment)
    tp = TopicPartition(topic, 0)
    answers: list[Any] = []
    with blocked(consumer) as late:
        future = consumer.commit_async({tp: 1}, lambda offsets, error: answers.append(error))
        with pytest.raises(KafkaTimeoutError, match="thread did not respond"):
            getattr(future, wait)()
        assert not late.is_set()
        with pytest.raises(TimeoutError):
            future.result(timeout=0.01)
        assert not late.is_set()
    future.result(timeout=PATIENCE_S)  # the commit continued
    assert future.result() is None
    assert future.exception() is None
    poll_until(consumer, lambda: answers == [None])
    assert consumer.committed(tp, timeout_ms=60_000) == 1


@pytest.mark.usefixtures("quick")
def test_consumer_goes_on_after_a_call_was_given_up(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group, **OPTIONS | {"enable_auto_commit": False})
    tp = TopicPartition(topic, 0)
    poll_until(consumer, consumer.assignment)
    with blocked(consumer), pytest.raises(KafkaTimeoutError):
        consumer.commit({tp: 7})
    consumer.bootstrap(timeout_ms=60_000)
    assert consumer.committed(tp, timeout_ms=60_000) is None  # it was cancelled before it began
    cluster.produce(topic, [b"a"])
    assert len(read(consumer, 1)) == 1


@pytest.mark.usefixtures("quick")
def test_assign_ends_in_time_when_the_core_is_blocked(
    topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(group_id=group, **OPTIONS)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    poll_until(consumer, consumer.bootstrap_connected)
    with blocked(consumer) as late:
        consumer.assign([TopicPartition(topic, 1)])
        assert not late.is_set()
    assert consumer.assignment() == {TopicPartition(topic, 1)}


STARTING = [*WAITING, *POLLING, "commit_async"]
"""Methods that start the consumer thread."""


@pytest.fixture
def no_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    def refuse(thread: threading.Thread) -> None:
        raise request.param

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


NO_THREADS = pytest.mark.parametrize(
    "no_threads", [RuntimeError("can't start new thread"), MemoryError()], indirect=True
)


@NO_THREADS
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("no_threads")
def test_call_raises_at_each_try_when_no_thread_starts(
    options: dict[str, Any], topic: str, group: str, name: str
) -> None:
    tp = TopicPartition(topic, 0)
    consumer = KafkaConsumer(**{**options, **OPTIONS, "group_id": group})
    consumer.assign([tp])
    for _ in range(2):
        if name in STARTING:
            with pytest.raises(ThreadStartError, match="thread did not start"):
                call(name, consumer, tp)
        else:
            with suppress(ThreadStartError):
                call(name, consumer, tp)
    assert consumer.explain().as_dict()["state"] in ("not started", "closed")
    consumer.close()


@pytest.mark.parametrize("name", STARTING)
def test_consumer_works_when_a_later_start_succeeds(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, name: str
) -> None:
    tp = TopicPartition(topic, 0)
    cluster.produce(topic, [b"a"], partition=0)
    consumer = make(group_id=group)
    consumer.assign([tp])

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ThreadStartError):
            call(name, consumer, tp)
    assert len(read(consumer, 1)) == 1


def test_core_runs_once_when_ctrl_c_strikes_in_the_start(
    cluster: Cluster, topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        if thread.name.startswith("kohort-heartbeat"):
            raise KeyboardInterrupt

    cluster.produce(topic, [b"a"])
    consumer = make(topic)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
    assert len(read(consumer, 1)) == 1
    assert len(kohort_threads()) == 1


def test_core_runs_when_ctrl_c_struck_before_the_start(
    cluster: Cluster, topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(thread: _thread.ConsumerThread) -> None:
        raise KeyboardInterrupt

    cluster.produce(topic, [b"a"])
    consumer = make(topic)
    with monkeypatch.context() as patch:
        patch.setattr(_thread.ConsumerThread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
    assert len(read(consumer, 1)) == 1
    assert len(kohort_threads()) == 1


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_call_raises_when_the_thread_died(
    topic: str, group: str, make: MakeConsumer, name: str
) -> None:
    tp = TopicPartition(topic, 0)
    consumer = make(topic, group_id=group, **OPTIONS)
    poll_until(consumer, lambda: tp in consumer.assignment())

    thread = consumer._driver.running_thread()
    thread.call_soon(sys.exit)  # one of the two exceptions that end an event loop
    thread._thread.join(PATIENCE_S)
    assert not thread.is_running
    begun = time.monotonic()
    if name in WAITING or name in POLLING or name in ("commit_async", "unsubscribe"):
        with pytest.raises(IllegalStateError, match="was ended from outside: close"):
            CALLS[name](consumer, tp)
    else:
        call(name, consumer, tp)
    assert time.monotonic() - begun < PATIENCE_S


def test_close_is_prompt_when_the_engine_never_ran(
    options: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_thread.ConsumerThread, "_run", lambda self: None)
    monkeypatch.setattr(_thread, "START_SECONDS", 0.1)
    monkeypatch.setattr(_thread_driver, "OVERRUN_SECONDS", 0.1)
    monkeypatch.setattr(_thread_driver, "CLOSE_TIMEOUT", UNLIMITED_S)
    monkeypatch.setattr("kohort.consumer.api._sync.CLOSE_TIMEOUT", UNLIMITED_S)
    consumer = KafkaConsumer(topic, **{**options, **OPTIONS})
    assert consumer.poll(timeout_ms=100) == {}
    with pytest.raises(KafkaTimeoutError):
        consumer.topics()
    begun = time.monotonic()
    thread = consumer._driver.running_thread()
    consumer.close(timeout_ms=500)
    assert time.monotonic() - begun < PATIENCE_S
    thread._loop.close()


AT_EXIT = """
import atexit
from kohort import KafkaConsumer
from kohort.errors import KafkaError

def last_look():
    try:
        with KafkaConsumer("orders", bootstrap_servers="127.0.0.1:1", group_id="g") as consumer:
            consumer.poll(timeout_ms=100)
            print("polled", flush=True)
    except KafkaError as error:
        print(type(error).__name__, flush=True)

atexit.register(last_look)
"""

AT_THE_VERY_END = """
from kohort import KafkaConsumer

class Owner:
    def __init__(self):
        self.consumer = KafkaConsumer("orders", bootstrap_servers="127.0.0.1:1", group_id="g")
        self.consumer.poll(timeout_ms=100)

    def __del__(self):
        self.consumer.close(timeout_ms=1000)
        print("closed", flush=True)

owner = Owner()
import sys
sys.modules["kept"] = owner
"""


@pytest.mark.parametrize(
    ("program", "said"), [(AT_EXIT, {"polled", "ThreadStartError"}), (AT_THE_VERY_END, {"closed"})]
)
def test_process_ends_when_a_consumer_is_used_at_exit(program: str, said: set[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert "did not respond" not in ended.stderr
    assert ended.stdout.strip() in said
