# cython: nonecheck=True, auto_pickle=False
"""Iteration over buffered records, with one check and one record for each step.

A consumer's iterator has its usual step here and everything else in its method ``_step``. Like the
modules of the decoder this one is also compiled, as ``_iteration_c``.
"""
# ruff: noqa: F403, F405 -- what is imported by * is what the compiled module has in C instead

from __future__ import annotations

import math
import os
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakSet

from kohort.records._primitives import *
from kohort.records._record import ConsumerRecord

Record = ConsumerRecord[Any, Any]

prepare_steps()


def built_from() -> int:
    """Return the state of the source that this was compiled from, or 0 if it was not."""
    return build_state()


class WakeUp:
    """An event that is set by every change that may affect which records a caller gets.

    A tight loop clears it first, then checks everything, and then runs until it is set. Setting it
    is one store, so any thread and any signal handler may do that. In the child of a fork every
    event is set.
    """

    def __init__(self) -> None:
        self.is_set: bool = True
        self.taken_at: float = -math.inf
        """Time of the latest step that took a record of a run, by the iterator's clock."""
        _wake_ups.add(self)

    def set(self) -> None:
        """Have the next step check everything."""
        self.is_set = True


_wake_ups: WeakSet[WakeUp] = WeakSet()


def _set_all() -> None:
    for wake_up in list(_wake_ups):
        wake_up.set()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_set_all)


class RecordRun:
    """Records of one partition that an iterator takes one by one without the lock.

    A step may take ``records[index]`` while the wake-up event is not set, ``index`` is below
    ``stop`` and the time below ``until``. A step changes ``index``, ``now`` and the event's
    ``taken_at``.
    """

    clock: Callable[[], float]

    def __init__(self, wake_up: WakeUp, clock: Callable[[], float]) -> None:
        self.wake_up = wake_up
        self.now: float = -math.inf
        """Time of the latest step, in seconds."""
        self.records: list[Record] = []
        self.first: int = 0
        self.index: int = 0
        self.stop: int = 0
        self.until: float = -math.inf
        use_clock(self, clock)

    def set_clock(self, clock: Callable[[], float]) -> None:
        """Take the time from this clock, in seconds."""
        use_clock(self, clock)

    def begin(self, records: list[Record], index: int, stop: int, until: float) -> None:
        """Let steps take ``records[index:stop]`` before the time ``until``."""
        self.records, self.until = records, until
        self.first = self.index = index
        self.stop = stop  # last: from here on steps take records

    def end(self) -> None:
        """Let steps take no more records. ``stop`` is 0 until the next run begins."""
        self.stop = self.first = self.index = 0
        self.records = []

    @property
    def latest(self) -> Record | None:
        """The latest record that a step took of this run, or None."""
        return self.records[self.index - 1] if self.index > self.first else None


class SyncIteration:
    """The iterator of a consumer. Subclasses set ``_record_run``."""

    _record_run: RecordRun

    def __next__(self) -> Record:
        """Return the next record. End after ``consumer_timeout_ms`` without one, or when closed."""
        run = self._record_run
        run.now = run.clock()
        # No call from here on (see consumer/_delivery).
        if run.index < run.stop and not run.wake_up.is_set and run.now < run.until:
            run.wake_up.taken_at = run.now
            record = run.records[run.index]
            run.index += 1
            return record
        return self._step()

    def _step(self) -> Record:
        raise NotImplementedError


class AsyncIteration:
    """The asynchronous iterator of a consumer. Subclasses set ``_record_run``."""

    _record_run: RecordRun

    def __anext__(self) -> Coroutine[Any, Any, Record]:
        """Return the next record. End when another task stops the consumer."""
        return next_step(self)

    def _step(self) -> Coroutine[Any, Any, Record]:
        raise NotImplementedError
