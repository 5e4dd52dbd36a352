"""The sync share consumer, whose caller is in another thread than its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import ShareConsumer, ShareRecord
from kohort.consumer.driver import _thread_driver
from kohort.errors import ConsumerClosedError, IllegalStateError, WakeupError
from kohort.share.client._client import ShareClient
from kohort.testing import Cluster


def test_a_thread_polls_commits_and_closes() -> None:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a", "b"])
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "workers",
            "start": "earliest",
        }
        with ShareConsumer("jobs", acknowledgement="explicit", **options) as consumer:
            records: list[ShareRecord[Any, Any]] = []
            while len(records) < 2:
                for found in consumer.poll(timeout_ms=1_000).values():
                    records += found
            consumer.accept(records[0])
            called: list[Any] = []
            consumer.commit_async(lambda *result: called.append(result)).result()
            assert consumer.commit() == {}
            assert called == [({}, None)]
            assert consumer.held() == 1
            consumer.wakeup()
            with pytest.raises(WakeupError):
                consumer.poll(timeout_ms=60_000)
        with ShareConsumer("jobs", **options) as consumer:
            record = next(iter(consumer))
            assert (record.value, record.delivery_count) == (b"b", 2)
            assert repr(record).startswith("ShareRecord(topic='jobs', partition=0, ")
            assert repr(record).endswith(", delivery_count=2)")
            assert consumer.commit() == {}


class Poll(threading.Thread):
    """A poll of a minute in another thread, with its result or error."""

    def __init__(self, consumer: ShareConsumer) -> None:
        super().__init__(daemon=True)
        self._consumer = consumer
        self.found: dict[Any, list[ShareRecord[Any, Any]]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.found = self._consumer.poll(timeout_ms=60_000)
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda cluster, consumer: cluster.produce("jobs", ["c"]), None),
        (lambda cluster, consumer: consumer.wakeup(), WakeupError),
        (lambda cluster, consumer: consumer.close(), ConsumerClosedError),
    ],
    ids=["record", "wakeup", "close"],
)
def test_waiting_poll_ends_by_other_threads_without_a_task(
    waiting: tuple[Cluster, ShareConsumer],
    end: Callable[[Cluster, ShareConsumer], object],
    error: type[BaseException] | None,
) -> None:
    cluster, consumer = waiting
    driver = consumer._driver
    calls: list[object] = []
    original, is_asked = driver.call, threading.Event()

    def call(plan: Any) -> Any:
        calls.append(plan)
        return original(plan)

    driver.call = call  # type: ignore[method-assign]
    assert consumer._client is not None
    look = consumer._client.look_for_poll

    def looked() -> None:
        look()
        is_asked.set()

    consumer._client.look_for_poll = looked  # type: ignore[method-assign]
    poll = Poll(consumer)
    poll.start()
    assert is_asked.wait(60)
    assert not calls  # only an error takes a call
    end(cluster, consumer)
    poll.join(60)
    if error is None:
        assert [each.value for found in poll.found.values() for each in found] == [b"c"]
        assert not calls
    else:
        assert isinstance(poll.error, error)
        if error is WakeupError:
            assert waiting_calls(consumer) == 0
    assert consumer._client.wanted_until < 0


def waiting_calls(consumer: ShareConsumer) -> int:
    """Return how many waits the client has, after it has seen all that came before."""

    async def count(client: ShareClient) -> int:
        return client._waiting

    # A call that is cancelled takes some rounds of the event loop.
    return [consumer._driver.call(consumer._plan(count, 60)) for _ in range(10)][-1]


@pytest.fixture
def joining() -> Iterator[tuple[Cluster, ShareConsumer]]:
    """Return a cluster with a record, and a consumer that has not polled yet."""
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a"])
        with ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        ) as consumer:
            yield cluster, consumer


@pytest.fixture
def waiting(joining: tuple[Cluster, ShareConsumer]) -> tuple[Cluster, ShareConsumer]:
    """Return a cluster and a consumer that has polled, so that its next poll makes no call."""
    while not joining[1].poll(timeout_ms=60_000):
        pass
    return joining


def test_wakeup_of_the_first_poll_leaves_no_wait_behind() -> None:
    with (
        Cluster(topics={"jobs": 1}) as cluster,
        ShareConsumer(
            "jobs", bootstrap_servers=cluster.bootstrap_servers, group_id="workers"
        ) as consumer,
    ):
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_ms=60_000)
        assert waiting_calls(consumer) == 0


def test_poll_of_a_process_that_was_stopped_raises_no_error(
    waiting: tuple[Cluster, ShareConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, consumer = waiting
    clock, wait, stopped = consumer._locks.clock, consumer._answered.wait, [0.0]

    def wait_long(seconds: float) -> None:
        wait(0)
        stopped[0] += 10

    monkeypatch.setattr(consumer._locks, "clock", lambda: clock() + stopped[0])
    monkeypatch.setattr(consumer._answered, "wait", wait_long)
    assert consumer.poll(timeout_ms=500) == {}
    assert stopped == [10]


def test_poll_of_a_thread_without_cpu_time_returns_nothing(
    waiting: tuple[Cluster, ShareConsumer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, consumer = waiting
    monkeypatch.setattr(_thread_driver, "OVERRUN_SECONDS", 0.1)
    gate, is_blocked = threading.Event(), threading.Event()

    def block() -> None:
        is_blocked.set()
        gate.wait(60)

    consumer._driver.call_soon(block)
    assert is_blocked.wait(60)
    assert consumer.poll(timeout_ms=5) == {}
    assert "the consumer thread did not respond" in caplog.text
    gate.set()
    assert waiting_calls(consumer) == 0


@pytest.mark.parametrize("is_buffered", [False, True])
def test_poll_raises_at_once_after_the_end_of_the_engine(
    waiting: tuple[Cluster, ShareConsumer], monkeypatch: pytest.MonkeyPatch, is_buffered: bool
) -> None:
    cluster, consumer = waiting
    thread, waits = consumer._driver.thread, []
    assert thread is not None
    call_soon, wait = consumer._driver.call_soon, consumer._answered.wait

    def end(action: Callable[[], object]) -> None:
        if not is_buffered:
            thread.stop(60)
        call_soon(action)

    def wait_until_end(seconds: float) -> None:
        waits.append(seconds)
        wait(seconds)
        assert consumer._locks.has_buffered
        thread.stop(60)

    if is_buffered:
        cluster.produce("jobs", ["b"])
    monkeypatch.setattr(consumer._answered, "wait", wait_until_end)
    with monkeypatch.context() as patch:
        patch.setattr(consumer._driver, "call_soon", end)
        with pytest.raises(IllegalStateError, match="ended"):
            consumer.poll(timeout_ms=60_000)
    assert len(waits) == is_buffered


def test_poll_has_its_limit_before_the_client_has_looked(
    waiting: tuple[Cluster, ShareConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, consumer = waiting
    client = consumer._client
    assert client is not None
    look = client.look_for_poll

    def look_after_event() -> None:
        client._advance()  # as the task that looks does
        look()

    monkeypatch.setattr(client, "look_for_poll", look_after_event)
    cluster.produce("jobs", ["b", "c", "d"])
    consumer._limit = 1
    found = consumer.poll(timeout_ms=60_000)
    assert [each.value for records in found.values() for each in records] == [b"b"]


def test_waiting_poll_gets_the_records_of_a_leader_without_a_task(
    joining: tuple[Cluster, ShareConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    _, consumer = joining
    consumer.poll(timeout_ms=2)
    while not consumer.assignment():
        consumer.commit()  # it joins, and makes no request of the leader
    found = consumer.poll(timeout_ms=60_000)
    assert [each.value for records in found.values() for each in records] == [b"a"]
    consumer.close()
    assert not [each for each in caplog.records if each.name == "asyncio"]
