"""Random orders of fetches, drains, seeks, pauses and rebalances: each record arrives once."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kohort.fetcher import FetchBuffer
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.records import ConsumerRecord
from kohort.subscription import SubscriptionState
from kohort.types import TopicPartition
from tests.fetcher.bench import raising_at
from tests.fetcher.making import (
    T0,
    T1,
    T2,
    ControlType,
    CountedLease,
    batch,
    broken,
    compacted,
    fetched,
    marker,
    owning,
    with_room,
)

Drained = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]

PARTITIONS = [T0, T1, T2]


def log() -> tuple[list[tuple[int, int, bytes]], list[int]]:
    """Return a log with gaps and control batches, and all its offsets.

    A batch is its first offset, the offset after it, and its bytes.
    """
    made: list[tuple[int, int, bytes]] = []
    offsets: list[int] = []
    end = 0
    for number in range(40):
        start = end
        if number % 5 == 3:
            kept = [start + 1, start + 4]
            data, end = compacted(start, kept, start + 6), start + 7
        elif number % 7 == 5:
            kept = []
            data, end = marker(start, ControlType.COMMIT, 7), start + 1
        else:
            kept = list(range(start, start + 1 + number % 4))
            data, end = batch(start, len(kept)), start + len(kept)
        made.append((start, end, data))
        offsets += kept
    return made, offsets


LOG, OFFSETS = log()
END = LOG[-1][1]
POISON = frozenset(OFFSETS[4::9])
"""Offsets whose records do not deserialize in ``Strained``."""
SPOILT = [(first, behind, broken(data)) for first, behind, data in LOG[8::14]]
"""Batches that are corrupt in ``Strained``, without a gap."""


def spoilt_log() -> tuple[list[tuple[int, int, bytes]], list[int]]:
    """Return the log with the corrupt batches, and the offsets that can be read."""
    by_first = {each[0]: each for each in SPOILT}
    gone = {offset for first, behind, _ in SPOILT for offset in range(first, behind)}
    readable = [offset for offset in OFFSETS if offset not in gone | POISON]
    return [by_first.get(each[0], each) for each in LOG], readable


class Interleaving(RuleBasedStateMachine):
    """The steps of the fetcher and the caller in any order. Responses may be late."""

    log = LOG
    offsets = OFFSETS
    options: Mapping[str, Any] = {}
    memory = 1 << 62

    @initialize()
    def start(self) -> None:
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["t"])
        self.buffer = FetchBuffer(
            self.subscription,
            max_bytes=1 << 20,
            on_error="skip",
            memory=FetchMemory(self.memory),
        )
        self.expected: dict[TopicPartition, int] = {}
        self.in_flight: list[tuple[TopicPartition, int, int]] = []
        self.leases: list[CountedLease] = []
        self.own(frozenset(PARTITIONS))

    def own(self, wanted: frozenset[TopicPartition]) -> None:
        for tp in self.subscription.assign_from_group(wanted):
            self.seek(tp, 0)
        self.expected = {tp: at for tp, at in self.expected.items() if tp in wanted}

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.subscription.seek(tp, offset)
        self.expected[tp] = offset

    @rule()
    def fetch(self) -> None:
        for target in with_room(self.buffer, self.subscription):
            tp, epoch, offset = target.topic_partition, target.epoch, target.offset
            if not any(sent[:2] == (tp, epoch) for sent in self.in_flight):
                self.in_flight.append((tp, epoch, offset))

    @precondition(lambda self: self.in_flight)
    @rule(pick=st.integers(0, 5), count=st.integers(0, 4))
    def answer(self, pick: int, count: int) -> None:
        tp, epoch, offset = self.in_flight.pop(pick % len(self.in_flight))
        at = next((i for i, (_, behind, _) in enumerate(LOG) if behind > offset), len(LOG))
        data = [data for _, _, data in self.log[at : at + count]]
        lease = CountedLease()
        self.leases.append(lease)
        held: Any = self.buffer.queues.limits.memory.count(lease, sum(map(len, data)))
        self.buffer.queues.append(
            fetched(self.subscription, tp, offset, *data, epoch=epoch, lease=held, **self.options)
        )

    @rule(limit=st.integers(1, 12), only=st.none() | st.sets(st.sampled_from(PARTITIONS)))
    def drain(self, limit: int, only: set[TopicPartition] | None) -> None:
        drained = self.check(self.buffer.drain(limit, only))
        assert sum(map(len, drained.values())) <= limit
        assert only is None or drained.keys() <= only

    def check(self, drained: Drained) -> Drained:
        paused = self.subscription.paused()
        for tp, records in drained.items():
            assert tp in self.expected
            assert tp not in paused
            start = bisect_left(self.offsets, self.expected[tp])
            want = self.offsets[start : start + len(records)]
            assert [record.offset for record in records] == want
            self.expected[tp] = want[-1] + 1
        return drained

    @rule(tp=st.sampled_from(PARTITIONS), offset=st.integers(0, END))
    def user_seeks(self, tp: TopicPartition, offset: int) -> None:
        if tp in self.subscription.assigned():
            self.seek(tp, offset)

    @rule(tp=st.sampled_from(PARTITIONS), paused=st.booleans())
    def user_pauses(self, tp: TopicPartition, paused: bool) -> None:
        if tp in self.subscription.assigned():
            (self.subscription.pause if paused else self.subscription.resume)([tp])

    @rule(wanted=st.frozensets(st.sampled_from(PARTITIONS)))
    def group_rebalances(self, wanted: frozenset[TopicPartition]) -> None:
        gone = self.subscription.assigned() - wanted
        self.subscription.mark_pending_revocation(gone)
        assert not gone & self.check(self.buffer.drain(3)).keys()
        self.subscription.revoke(gone)
        self.own(wanted)

    @invariant()
    def positions_pass_only_what_was_delivered(self) -> None:
        for tp, expected in self.expected.items():
            position = self.subscription.position(tp)
            assert position is not None
            assert position >= expected
            passed = bisect_left(self.offsets, position)
            assert passed == bisect_left(self.offsets, expected)

    def teardown(self) -> None:
        if hasattr(self, "buffer"):
            self.buffer.close()
            assert all(lease.released <= 1 for lease in self.leases)
            assert self.buffer.queues.limits.memory.pooled_bytes == 0


Interleaving.TestCase.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, derandomize=True
)
TestInterleaving = Interleaving.TestCase


class Strained(Interleaving):
    """The same with little memory and with unreadable data, which is skipped."""

    log, offsets = spoilt_log()
    options = {"deserialize": raising_at(*POISON)}
    memory = 1500


Strained.TestCase.settings = Interleaving.TestCase.settings
TestStrained = pytest.mark.long(Strained.TestCase)  # as above, with less memory


def test_append_and_drain_in_two_threads_lose_and_repeat_nothing() -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    count = 4_000
    subscription = owning(*partitions)
    room = threading.Event()
    ready = threading.Event()
    buffer = FetchBuffer(subscription, max_bytes=1 << 20, on_room=room.set)
    leases: list[CountedLease] = []
    failed: list[BaseException] = []

    def core() -> None:
        try:
            left = set(partitions)
            while left:
                room.clear()
                targets = with_room(buffer, subscription)
                for tp, epoch, offset, *_ in targets:
                    if offset >= count:
                        left.discard(tp)
                        continue
                    lease = CountedLease()
                    leases.append(lease)
                    data = batch(offset, 20)
                    fetch = fetched(subscription, tp, offset, data, epoch=epoch, lease=lease)
                    assert buffer.queues.append(fetch)
                    ready.set()
                if left and not targets:
                    assert room.wait(60), "never woken although the buffer was drained"
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=core)
    thread.start()
    seen: dict[TopicPartition, list[int]] = {tp: [] for tp in partitions}
    while not failed and any(len(offsets) < count for offsets in seen.values()):
        ready.clear()
        drained = buffer.drain(37)
        for tp, records in drained.items():
            seen[tp] += [record.offset for record in records]
        if not drained and not failed and any(len(o) < count for o in seen.values()):
            assert ready.wait(60)
    thread.join(60)
    assert not failed
    assert all(offsets == list(range(count)) for offsets in seen.values())
    assert buffer.drain(1) == {}
    assert all(lease.released == 1 for lease in leases)
