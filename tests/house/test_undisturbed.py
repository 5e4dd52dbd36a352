"""Measurements that other threads do not change."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.undisturbed import least, peak, undisturbed

MB = 1 << 20


@contextmanager
def noise() -> Iterator[None]:
    """Run a thread that constantly allocates, frees and creates reference cycles."""
    started, over = threading.Event(), threading.Event()

    def allocate() -> None:
        while not over.is_set():
            cycle: list[object] = [bytearray(MB)]
            cycle.append(cycle)
            started.set()

    thread = threading.Thread(target=allocate)
    thread.start()
    started.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def tracing() -> Iterator[None]:
    """Running tracemalloc."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def small() -> None:
    for _ in range(2000):
        bytearray(1000)


@pytest.mark.usefixtures("tracing")
def test_peak_leaves_out_other_threads() -> None:
    with noise():
        for _ in range(10):
            assert least(lambda: peak(small), 10_000) < 10_000


@pytest.mark.usefixtures("tracing")
def test_peak_shows_what_the_call_allocates() -> None:
    with noise():
        assert least(lambda: peak(lambda: bytearray(3 * MB)), MB) >= 3 * MB


@pytest.mark.long
def test_collections_leave_out_other_threads() -> None:
    def collections() -> int:
        gc.collect()
        before = gc.get_stats()[0]["collections"]
        small()
        return int(gc.get_stats()[0]["collections"] - before)

    with noise():
        for _ in range(10):
            assert least(collections, 0) == 0


def test_switch_interval_is_restored_after_an_error() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), undisturbed():
        raise ZeroDivisionError
    assert sys.getswitchinterval() == before
