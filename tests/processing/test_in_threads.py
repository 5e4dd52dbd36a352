"""process() with KafkaConsumer: handlers are functions in threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.errors import ConfigurationError
from kohort.processing import Batch, GiveUp, Retry, Skip, context, process
from kohort.testing import Cluster

Record = ConsumerRecord[bytes, bytes]
LIMIT = 60.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2}) as cluster:
        yield cluster


@pytest.fixture
def consumer(cluster: Cluster) -> KafkaConsumer[bytes, bytes]:
    return make(cluster)


def make(cluster: Cluster, **options: Any) -> KafkaConsumer[bytes, bytes]:
    servers = cluster.bootstrap_servers
    return KafkaConsumer(
        "orders",
        **{
            "bootstrap_servers": servers,
            "group_id": "g",
            "auto_offset_reset": "earliest",
            **options,
        },
    )


class Stopper:
    """A handler that keeps values, and stops its consumer after ``count`` of them."""

    def __init__(
        self,
        consumer: KafkaConsumer[bytes, bytes],
        count: int,
        act: Callable[[Record], object] = lambda record: None,
    ) -> None:
        self.values: list[bytes] = []
        self.threads: set[int] = set()
        self._consumer = consumer
        self._count = count
        self._act = act

    def __call__(self, record: Record) -> None:
        self._act(record)
        self.values.append(record.value or b"")
        self.threads.add(threading.get_ident())
        if len(self.values) == self._count:
            self._consumer.wakeup()


def committed(cluster: Cluster) -> int:
    return sum(at.offset for at in cluster.committed("g").values())


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_every_record_is_handled_once(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes], order: Any
) -> None:
    cluster.produce("orders", [(f"k{n % 7}", f"{n}") for n in range(500)])
    handler = Stopper(consumer, 500)
    process(consumer, handler, order=order, concurrency=8)
    assert sorted(handler.values) == sorted(b"%d" % n for n in range(500))
    assert committed(cluster) == 500
    assert threading.get_ident() not in handler.threads
    assert cluster.group("g").members == ()


def test_handlers_run_side_by_side(cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]) -> None:
    cluster.produce("orders", ["a", "b", "c", "d"], partition=0)
    together = threading.Barrier(4, timeout=LIMIT)
    handler = Stopper(consumer, 4, lambda record: together.wait())
    process(consumer, handler, order="none", concurrency=4)
    assert committed(cluster) == 4


def test_failures_are_retried_skipped_and_handed_over(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]
) -> None:
    failed: list[tuple[bytes | None, str, int]] = []

    def act(record: Record) -> None:
        if record.value == b"retried" and context.attempt < 3:
            raise ConnectionError
        if record.value == b"skipped":
            raise Skip
        if record.value == b"given up":
            raise GiveUp from ValueError("wrong")

    def keep(record: Record, error: Exception, attempts: int) -> None:
        failed.append((record.value, str(error), attempts))

    cluster.produce("orders", ["retried", "skipped", "given up", "last"], partition=0)
    handler = Stopper(consumer, 2, act)
    process(consumer, handler, retry=Retry(5, first=0.01), failed=keep)
    assert handler.values == [b"retried", b"last"]
    assert failed == [(b"given up", "wrong", 1)]
    assert committed(cluster) == 4


def test_a_failure_is_logged_when_its_batch_is_done_since(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    def handler(records: list[Record]) -> None:
        if context.attempt < 3:
            raise OSError
        consumer.wakeup()

    cluster.produce("orders", ["a", "b"], partition=0)
    with caplog.at_level("INFO", "kohort.processing"):
        process(consumer, handler, batch=Batch(2), retry=Retry(3, first=0.0))
    lines = [line for line in caplog.messages if "raised" in line]
    assert [line.partition(". ")[0] for line in lines] == [
        f"orders-0 offset 0: the handler raised OSError:  in attempt {n}" for n in (1, 2)
    ]


def test_the_error_of_a_handler_is_raised(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]
) -> None:
    def act(record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("bad record")

    cluster.produce("orders", ["a", "bad", "c"], partition=0)
    with pytest.raises(ValueError, match="bad record"):
        process(consumer, Stopper(consumer, 9, act))
    assert committed(cluster) == 1


def test_a_thread_longer_than_the_drain_is_ignored(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]
) -> None:
    begun, go = threading.Event(), threading.Event()
    seen: list[tuple[bool, bool]] = []

    def act(record: Record) -> None:
        if record.value == b"long":
            begun.set()
            go.wait(LIMIT)
            seen.append((context.cancelled, context.deadline is not None))
            raise ValueError("nobody hears this")
        assert begun.wait(LIMIT)

    cluster.produce("orders", ["long", "short"], partition=0)
    process(consumer, Stopper(consumer, 1, act), order="none", drain=2.0)
    at = cluster.committed("g")[TopicPartition("orders", 0)]
    assert (at.offset, at.metadata) == (0, "k1:Ag==")
    go.set()
    while not seen:
        threading.Event().wait(0.01)
    assert seen == [(True, True)]


def test_a_thread_that_ends_because_it_is_cancelled_is_not_committed(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]
) -> None:
    ended = threading.Event()

    def act(record: Record) -> None:
        if record.value == b"long":
            consumer.wakeup()
            while not context.cancelled:
                threading.Event().wait(0.001)
            ended.set()

    cluster.produce("orders", ["a", "long"], partition=0)
    process(consumer, act, drain=0.3)
    assert ended.wait(LIMIT)
    assert committed(cluster) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_process_and_its_handler_is_restored(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes], number: signal.Signals
) -> None:
    cluster.produce("orders", ["a", "b"], partition=0)
    before = signal.getsignal(number)

    def act(record: Record) -> None:
        os.kill(os.getpid(), number)

    process(consumer, Stopper(consumer, 9, act), order="none")
    assert signal.getsignal(number) is before
    assert committed(cluster) in (1, 2)
    assert cluster.group("g").members == ()


def test_a_second_signal_ends_the_drain(
    cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]
) -> None:
    go = threading.Event()

    def act(record: Record) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while context.deadline is None:
            go.wait(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        go.wait(LIMIT)

    cluster.produce("orders", ["a"], partition=0)
    process(consumer, Stopper(consumer, 9, act), drain=1e6)
    assert committed(cluster) == 0
    go.set()


def test_signals_of_other_threads_and_switched_off_are_left_alone(cluster: Cluster) -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGTERM)

    def run(options: dict[str, Any]) -> None:
        cluster.produce("orders", ["a"], partition=0)
        consumer = make(cluster)
        act = lambda record: seen.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
        process(consumer, Stopper(consumer, 1, act), **options)

    thread = threading.Thread(target=run, args=({},))
    thread.start()
    thread.join(LIMIT)
    run({"handle_signals": False})
    assert seen == [before, before]


def test_revoked_partitions_are_drained_and_committed(cluster: Cluster) -> None:
    first, second = make(cluster), make(cluster)
    begun, go = threading.Event(), threading.Event()
    values: list[bytes] = []
    revoked: list[tuple[frozenset[TopicPartition], list[bytes]]] = []

    def slow(record: Record) -> None:
        begun.set()
        go.wait(LIMIT)
        values.append(record.value or b"")

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked_now: frozenset[TopicPartition]) -> None:
            revoked.append((revoked_now, list(values)))

    def join() -> None:
        assert begun.wait(LIMIT)
        threading.Timer(0.5, go.set).start()
        process(second, Stopper(second, 2))

    first.subscribe(["orders"], listener=Listener())
    cluster.produce("orders", ["a"], partition=0)
    cluster.produce("orders", ["b"], partition=1)
    thread = threading.Thread(target=join)
    thread.start()

    def stop() -> None:
        cluster.wait_until(lambda: revoked, timeout=LIMIT)
        cluster.produce("orders", ["c"], partition=0)
        cluster.produce("orders", ["d"], partition=1)
        cluster.wait_until(lambda: committed(cluster) == 4, timeout=LIMIT)
        first.wakeup()
        second.wakeup()

    stopper = threading.Thread(target=stop)
    stopper.start()
    process(first, slow, concurrency=4)
    thread.join(LIMIT)
    stopper.join(LIMIT)
    assert committed(cluster) == 4
    partitions, handled = revoked[0]
    assert partitions
    assert {(b"a", b"b")[tp.partition] for tp in partitions} <= set(handled)
    assert values.count(b"a") == values.count(b"b") == 1


def test_coroutines_are_refused(cluster: Cluster, consumer: KafkaConsumer[bytes, bytes]) -> None:
    async def handler(record: Record) -> None:
        pass

    cluster.produce("orders", ["a"], partition=0)
    wrong: Any = handler
    with pytest.raises(ConfigurationError, match="needs plain functions"):
        process(consumer, wrong)
    with pytest.raises(ConfigurationError, match="needs plain functions"):
        process(consumer, lambda record: wrong(record), failed="skip")
    assert committed(cluster) == 0
