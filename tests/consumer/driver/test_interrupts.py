"""Ctrl-C at every point of poll() and of iteration where Python can raise it: no record is lost."""

from __future__ import annotations

import _weakrefset
import asyncio
import dis
import gc
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.consumer.driver import _thread
from kohort.consumer.driver._delivery import IterationDelivery, PollDelivery
from kohort.consumer.driver._iteration_buffer import DrainSize, IterationBuffer
from kohort.consumer.driver._signal import wait_slices
from kohort.consumer.driver._tables import TablePoll
from kohort.consumer.driver._thread import start_thread
from kohort.errors import OffsetOutOfRangeError
from kohort.fetcher import RecordTarget
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.records import allocate_in_python, to_columns
from kohort.subscription import OffsetReset
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import once_waiting, poll_until, read
from tests.fetcher.bench import Bench
from tests.fetcher.making import T0, T1, CountedLease, batch, broken, offsets


@pytest.fixture(autouse=True)
def no_callbacks_of_the_collector() -> Iterator[None]:
    """Remove the callbacks of the garbage collector, as Hypothesis has one.

    Python drops their exceptions, so that an interrupt in one of them has no effect.
    """
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


# An interrupt here leaves the lock of a log handler held in Python 3.11 and 3.12. Every later test
# of this process that logs in another thread would wait for it.
LOCKS_OF_LOGGING = {logging.Handler.acquire.__code__, logging.Handler.release.__code__}


def _is_not_struck(frame: FrameType, event: str) -> bool:
    if frame.f_code is wait_slices.__code__:
        return event == "call" and not _is_next_step(frame)
    return frame.f_code.co_filename == _weakrefset.__file__ or frame.f_code in LOCKS_OF_LOGGING


def _is_next_step(frame: FrameType) -> bool:
    """True if a "for" loop begins or resumes this generator, False if the generator ends."""
    loop = frame.f_back
    assert loop is not None
    at = loop.f_lasti
    while dis.opname[loop.f_code.co_code[at]] == "CACHE":  # Python 3.12 points after it
        at -= 2
    return dis.opname[loop.f_code.co_code[at]] == "FOR_ITER"


class Interrupt:
    """A profile function that raises KeyboardInterrupt at one event, counted from its start.

    Python runs signal handlers when a function begins and when a built-in function has returned. It
    drops exceptions in callbacks of weak references. The garbage collector may run these callbacks
    at any time, so their events do not count. The end of a suspended generator is a "call" event,
    but Python runs no handlers there. The end of ``slices()`` does not count for this reason. The
    locks of log handlers do not count either.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and not _is_not_struck(frame, event):
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                raise KeyboardInterrupt


def test_interrupt_strikes_a_generator_until_its_end() -> None:
    def take(count: int) -> None:
        for _ in wait_slices(60):
            count -= 1
            if not count:
                return

    struck: list[str] = []
    while True:
        try:
            sys.setprofile(Interrupt(1 + len(struck)))
            take(4)
            sys.setprofile(None)
            break
        except KeyboardInterrupt as error:
            *_, (frame, _), _ = traceback.walk_tb(error.__traceback__)
            struck.append(frame.f_code.co_name)
        finally:
            sys.setprofile(None)
    resumed = 3
    assert struck.count("wait_slices") >= 4 + resumed  # calls of time.monotonic() count, too


@pytest.mark.parametrize("iterate", [False, True])
@pytest.mark.parametrize("deserializer", [None, bytes.decode])
def test_interrupt_anywhere_loses_no_record_and_keeps_no_lock(
    cluster: Cluster, topic: str, make: MakeConsumer, iterate: bool, deserializer: Any
) -> None:
    tp = TopicPartition(topic, 0)
    for first in range(0, 4_000, 8):  # many batches, so that iteration opens many
        cluster.produce(topic, [b"%d" % n for n in range(first, first + 8)], partition=0)
    most = 8 if iterate else 3  # eight steps include quick ones
    consumer = make(topic, max_poll_records=most, value_deserializer=deserializer)
    poll_until(consumer, consumer.assignment)
    consumer.seek(tp, 0)
    offsets: list[int] = []
    steps = interrupts = in_a_row = 0
    while in_a_row < 20:  # ends when this many steps in a row do not reach the event
        assert len(offsets) < 4_000, "more records are needed"
        steps += 1
        interrupt = Interrupt(1 + steps // 5)
        try:
            if iterate:
                sys.setprofile(interrupt)
                for record in consumer:  # next() returns into a signal handler, a loop does not
                    sys.setprofile(None)
                    offsets.append(record.offset)
                    break
            else:
                sys.setprofile(interrupt)
                polled = consumer.poll(60_000)
                sys.setprofile(None)
                offsets += [record.offset for record in polled[tp]]
            in_a_row += 1
        except KeyboardInterrupt:
            interrupts, in_a_row = interrupts + 1, 0
            assert consumer.position(tp) == len(offsets)
        finally:
            sys.setprofile(None)
        assert offsets == list(range(len(offsets)))
    assert interrupts > 50
    consumer.pause(tp)
    assert consumer.poll() == {}


def test_an_interrupt_ends_the_wait_at_once(topic: str, make: MakeConsumer) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    consumer = make(topic)
    poll_until(consumer, consumer.assignment)
    sent: list[float] = []

    def send() -> None:
        sent.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = once_waiting(consumer, send)
    try:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=90_000)
        assert time.monotonic() - sent[0] < 45
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert consumer.poll() == {}


@pytest.mark.parametrize("way", ["poll_arrow", "poll_batches"])
def test_interrupt_anywhere_in_building_a_table_loses_nothing(
    cluster: Cluster, topic: str, make: MakeConsumer, way: str
) -> None:
    tp = TopicPartition(topic, 0)
    for first in range(0, 4_000, 8):
        cluster.produce(topic, [b"%d" % n for n in range(first, first + 8)], partition=0)
    consumer = make(topic)
    poll_until(consumer, consumer.assignment)
    getattr(consumer, way)(60_000)  # imports included
    consumer.seek(tp, 0)
    offsets: list[int] = []
    steps = interrupts = in_a_row = 0
    while in_a_row < 8:  # ends when this many steps in a row do not reach the event
        assert len(offsets) < 4_000, "more records are needed"
        steps += 1
        interrupt = Interrupt(3 * steps + len(way) % 3)  # every third, all take a minute
        try:
            sys.setprofile(interrupt)
            table = getattr(consumer, way)(60_000, max_records=3)
            sys.setprofile(None)
            if way == "poll_arrow":
                offsets += table.column("offset").to_pylist()
            else:
                offsets += [offset for columns in table for offset in columns.offset]
            in_a_row += 1
        except KeyboardInterrupt:
            interrupts, in_a_row = interrupts + 1, 0
            assert consumer.position(tp) == len(offsets)
        finally:
            sys.setprofile(None)
        assert offsets == list(range(len(offsets)))
    assert interrupts > 50


def test_interrupt_anywhere_in_start_leaves_the_thread_usable(
    topic: str, make: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's start of the thread is not struck: it may leave the thread in its first step."""

    def start_and_strike(thread: threading.Thread) -> None:
        start_thread(thread)
        sys.setprofile(Interrupt(at))

    monkeypatch.setattr(_thread, "start_thread", start_and_strike)
    at, is_over = 0, False
    while not is_over:
        at += 1
        consumer = make(topic)
        try:
            consumer._driver.running_thread()
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.setprofile(None)
        assert topic in consumer.topics()
        thread = consumer._driver.thread
        consumer.close()
        assert thread is not None and not thread.is_running
    assert at > 5


def call_topics(consumer: KafkaConsumer) -> None:
    consumer.topics()


def call_with_callbacks(consumer: KafkaConsumer) -> None:
    run_all = consumer._driver.callback_runner.run_all
    consumer._driver._call_with_callbacks(lambda: asyncio.sleep(0.001), run_all, 20)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # struck before its start
@pytest.mark.parametrize("call", [call_topics, call_with_callbacks])
def test_interrupt_anywhere_in_a_call_leaves_the_thread_usable(
    topic: str, make: MakeConsumer, call: Callable[[KafkaConsumer], None]
) -> None:
    consumer = make(topic)
    consumer.topics()
    at, is_over = 0, False
    while not is_over:
        at += 1
        try:
            sys.setprofile(Interrupt(at))
            call(consumer)
            sys.setprofile(None)
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.setprofile(None)
        assert topic in consumer.topics(), at
    assert at > 20


def test_close_works_after_an_interrupt_before_it(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"0"], partition=0)
    consumer = make(topic, group_id=group, auto_commit_interval_ms=60_000)
    read(consumer, 1)
    close_now, entered = consumer._driver._close_now, False

    def close_uninterrupted(*request: Any) -> None:
        nonlocal entered
        sys.setprofile(None)
        entered = True
        close_now(*request)

    consumer._driver._close_now = close_uninterrupted  # type: ignore[method-assign,assignment]
    at = 0
    while not entered:
        at += 1
        try:
            sys.setprofile(Interrupt(at))
            consumer.close()
        except KeyboardInterrupt:
            assert not consumer._driver.life.is_closed
            assert consumer._driver.owner_lock.is_free
        finally:
            sys.setprofile(None)
    assert at > 10
    assert consumer._driver.life.is_closed
    assert not cluster.group(group).members
    assert cluster.committed(group)[TopicPartition(topic, 0)].offset == 1


# --- with a partition that fails ------------------------------------------------------------


class Failing:
    """A buffer with three records of T0, and T1, or T0 after its records, cannot be read."""

    def __init__(self, cause: str) -> None:
        policy = {"on_error": "pause" if cause == "pause" else "skip"}
        self.bench = bench = Bench(T0, T1, default_reset=OffsetReset.EARLIEST, buffered=policy)
        self.iterated = IterationBuffer(bench.subscription)
        if cause.startswith("out of range"):
            bench.put(T0, 0, batch(0, 3))
            tp = T0 if cause == "out of range after the records" else T1
            bench.fail(tp, OffsetOutOfRangeError("out of range"), is_transient=False)
            return
        bench.put(T1, 0, broken(batch(0, 3)))
        bench.drain()
        if cause != "corrupt for the first time":
            bench.drain()
            bench.put(T1, 0, broken(batch(0, 3)))
        else:
            bench.subscription.seek(T1, 3)
            bench.put(T1, 3, broken(batch(3, 3)))
        bench.put(T0, 0, batch(0, 3))

    def poll(self) -> dict[TopicPartition, list[int]]:
        delivery = PollDelivery(self.bench.buffer, self.iterated, 10, RecordTarget())
        try:
            delivery.take(None, repeat_errors=True)
            records = delivery.target.records
            sys.setprofile(None)
        except BaseException:
            delivery.roll_back()
            raise
        return {tp: offsets(found) for tp, found in records.items()}

    def iterate(self) -> dict[TopicPartition, list[int]]:
        buffer, size = self.bench.buffer, DrainSize(10, deserializes=False, timed=False)
        delivery = IterationDelivery(buffer, self.iterated, size, float)
        try:
            delivery.take(None, repeat_errors=True)
            delivery.commit()
            sys.setprofile(None)
        except BaseException:
            delivery.roll_back()
            raise
        found: dict[TopicPartition, list[int]] = {}
        while (record := self.iterated.next()) is not None:
            tp = TopicPartition(record.topic, record.partition)
            found.setdefault(tp, []).append(record.offset)
        return found

    def read_batches(self) -> dict[TopicPartition, list[int]]:
        bench = self.bench
        if not bench.buffer.queues.bytes_buffered() and bench.position(T0) == 0:
            bench.put(T0, 0, batch(0, 3))  # rows that are put back are fetched again
        poll = TablePoll(bench.buffer, lambda: None, 10, to_columns, allocate_in_python)
        try:
            poll.take(None, repeat_errors=True)
            tables = poll.table or []
            sys.setprofile(None)
        except BaseException:
            poll.roll_back()
            raise
        return {TopicPartition(part.topic, part.partition): list(part.offset) for part in tables}


CAUSES = (
    "out of range",
    "out of range after the records",
    "corrupt for the first time",
    "corrupt",
    "pause",
)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("way", ["poll", "iterate", "read_batches"])
def test_an_interrupt_anywhere_loses_nothing_beside_a_failure(cause: str, way: str) -> None:
    at, is_over = 0, False
    while not is_over:
        at += 1
        failing = Failing(cause)
        found: dict[TopicPartition, list[int]] = {}
        rooms = failing.bench.rooms
        try:
            sys.setprofile(Interrupt(at))
            found = getattr(failing, way)()
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.setprofile(None)
        steps = 1
        while T0 not in found and steps < 4:
            assert failing.bench.position(T0) == 0, at
            found = getattr(failing, way)()
            steps += 1
        assert found == {T0: [0, 1, 2]}, at
        assert failing.bench.position(T0) == 3, at
        for _ in range(2):
            assert getattr(failing, way)() == {}, at
        if cause != "pause":
            assert failing.bench.rooms > rooms, "the fetcher must fetch or look up T1"
    assert at > 50


# --- the memory of pooled responses ---------------------------------------------------------


def test_an_interrupt_anywhere_in_a_release_frees_the_memory() -> None:
    at, is_over = 0, False
    while not is_over:
        at += 1
        memory, response = FetchMemory(1000), CountedLease()
        lease = memory.count(response, 100)
        share = lease.share()
        lease.release()
        try:
            sys.setprofile(Interrupt(at))
            share.release()
            sys.setprofile(None)
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.setprofile(None)
        share.release()
        assert memory.pooled_bytes == 0, at
        assert response.released <= 1, at
    assert at > 3


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "stale"])
def test_an_interrupt_anywhere_in_a_drain_frees_the_memory(finished: bool) -> None:
    """A drain releases fetches that it has read, and fetches before a seek."""
    at, is_over = 0, False
    while not is_over:
        at += 1
        bench = Bench(T0, buffered={"memory": FetchMemory(1000)})
        memory = bench.buffer.queues.limits.memory
        lease: Any = memory.count(CountedLease(), 100)
        bench.put(T0, 0, batch(0, 3), lease=lease)
        if not finished:
            bench.subscription.seek(T0, 3)
        try:
            sys.setprofile(Interrupt(at))
            bench.buffer.drain(10)
            sys.setprofile(None)
            is_over = True
        except KeyboardInterrupt:
            is_over = False
        finally:
            sys.setprofile(None)
        bench.drain()
        bench.drain()
        assert memory.pooled_bytes == 0, at
    assert at > 10
