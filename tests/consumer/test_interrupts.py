"""Ctrl-C at every point of poll() and of iteration where Python can raise it: no record is lost."""

from __future__ import annotations

import _weakrefset
import dis
import signal
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.consumer._signal import wait_slices
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_until


def _runs_no_handlers(frame: FrameType, event: str) -> bool:
    if frame.f_code is wait_slices.__code__:
        return event == "call" and not _is_next_step(frame)
    return frame.f_code.co_filename == _weakrefset.__file__


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
    but Python runs no handlers there. The end of ``slices()`` does not count for this reason.
    """

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and not _runs_no_handlers(frame, event):
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
def test_an_interrupt_anywhere_loses_nothing_and_shuts_nobody_out(
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
                polled = consumer.poll(5_000)
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
    timer = threading.Timer(0.2, send)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout_ms=25_000)
        assert time.monotonic() - sent[0] < 2
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert consumer.poll() == {}


@pytest.mark.parametrize("way", ["poll_arrow", "poll_batches"])
def test_an_interrupt_anywhere_in_the_making_of_a_table_loses_nothing(
    cluster: Cluster, topic: str, make: MakeConsumer, way: str
) -> None:
    tp = TopicPartition(topic, 0)
    for first in range(0, 4_000, 8):
        cluster.produce(topic, [b"%d" % n for n in range(first, first + 8)], partition=0)
    consumer = make(topic)
    poll_until(consumer, consumer.assignment)
    getattr(consumer, way)(5_000)  # imports included
    consumer.seek(tp, 0)
    offsets: list[int] = []
    steps = interrupts = in_a_row = 0
    while in_a_row < 8:  # ends when this many steps in a row do not reach the event
        assert len(offsets) < 4_000, "more records are needed"
        steps += 1
        interrupt = Interrupt(3 * steps + len(way) % 3)  # every third, all take a minute
        try:
            sys.setprofile(interrupt)
            table = getattr(consumer, way)(5_000, max_records=3)
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
