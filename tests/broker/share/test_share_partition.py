"""The machine of a share-partition: random lives keep its invariants, and single rules."""

from __future__ import annotations

import itertools
import random

import pytest

from kohort.broker.share import Ack, AckError, AcquireLimit, ShareSettings, StateBatch
from kohort.broker.share._partition import Change, SharePartition, check_acks
from kohort.broker.share._state_batches import merged
from kohort.broker.share._values import ReadBatch, RecordState
from kohort.errors import ErrorCode

S = ShareSettings(lock_ms=1_000, max_locks=60)
ALL = AcquireLimit(1_000)
OVER = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class Life:
    """A machine with its log and its stored state, and a model of what must hold.

    ``counts`` has the deliveries of each offset, ``done`` those that an acknowledgement ended.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log: list[ReadBatch] = []
        self.now = 0.0
        self.stored: list[StateBatch] = []
        self.start = 0
        self.settings = S
        self.done: set[int] = set()
        self.counts: dict[int, int] = {}
        self.owners: dict[int, str] = {}
        self.machine = SharePartition(0)

    @property
    def end(self) -> int:
        return self.log[-1].last + 1 if self.log else 0

    def step(self) -> None:
        kind = self.rng.choice(("produce", "fetch", "fetch", "ack", "ack", "wait", "close"))
        if self.rng.random() < 0.03:
            kind = "restart"
        getattr(self, kind)()
        self.check()

    def produce(self) -> None:
        first = self.end + self.rng.choice((0, 0, 0, 1))
        self.log.append(ReadBatch(first, first + self.rng.randint(0, 9)))

    def fetch(self) -> None:
        if not self.machine.has_room(self.settings.max_locks):
            return
        offset = self.machine.next_fetch_offset()
        read = [batch for batch in self.log if batch.last >= offset][: self.rng.randint(1, 3)]
        member = self.rng.choice("ABC")
        limit = AcquireLimit(self.rng.randint(1, 20), self.rng.choice((1, 5, 500)))
        limit = limit._replace(is_strict=self.rng.random() < 0.5)
        found = self.machine.acquire(member, read, limit, self.settings, self.now)
        total = 0
        for first, last, count in found:
            total += last - first + 1
            for each in range(first, last + 1):
                assert each not in self.owners, "two members have it"
                assert each not in self.done, "it was over"
                assert count == self.counts.get(each, 0) + 1 <= self.settings.delivery_limit
                self.counts[each] = count
                self.owners[each] = member
        assert not limit.is_strict or total <= limit.max_records

    def ack(self) -> None:
        member = self.rng.choice("ABC")
        mine = sorted(offset for offset, owner in self.owners.items() if owner == member)
        wrong = self.rng.random() < 0.1
        chosen = [offset for offset in mine if self.rng.random() < 0.6]
        types = {offset: self.rng.choice((0, 1, 1, 2, 3, 4)) for offset in chosen}
        if wrong and self.machine.start <= self.machine.end:
            stranger = self.rng.randint(self.machine.start, self.machine.end)
            if stranger not in mine:
                chosen = sorted({*chosen, stranger})
                types[stranger] = 1
        acks = [Ack(offset, offset, (types[offset],)) for offset in chosen]
        check_acks(acks)
        try:
            change = self.machine.acknowledge(member, acks, self.settings, self.now)
        except AckError:
            assert set(chosen) - set(mine)
            return
        assert set(chosen) <= set(mine) or all(
            self.machine.state_of(offset) is None for offset in set(chosen) - set(mine)
        )
        if not self.write(change):
            return
        for offset in set(chosen) & set(mine):
            if types[offset] != 4:
                del self.owners[offset]
                released = types[offset] == 2
                if not released or self.counts[offset] >= self.settings.delivery_limit:
                    self.done.add(offset)

    def write(self, change: Change) -> bool:
        """Write and apply a change, unless the write fails."""
        if self.rng.random() < 0.1:
            return False
        self.start = max(self.start, self.machine.start)
        self.stored = merged(self.stored, change.batches, self.start)
        self.machine.apply(change)
        return True

    def wait(self) -> None:
        self.now += self.rng.choice((0.1, 0.6, 1.1))
        for unit in self.machine.due(self.now):
            if self.write(self.machine.expire(unit, self.settings)):
                self.freed(range(unit.first, unit.last + 1))
            else:
                self.machine.next_deadline = self.now

    def close(self) -> None:
        member = self.rng.choice("ABC")
        if self.write(self.machine.release(member, self.settings)):
            self.freed([offset for offset, owner in self.owners.items() if owner == member])

    def freed(self, offsets: range | list[int]) -> None:
        for offset in list(offsets):
            if self.owners.pop(offset, None) is not None:
                if self.counts[offset] >= self.settings.delivery_limit:
                    self.done.add(offset)

    def restart(self) -> None:
        """Load the stored state. Locks are forgotten, with the counts of what was out."""
        self.machine = SharePartition(self.start, self.stored)
        self.owners.clear()
        counts = {
            offset: batch.deliveries
            for batch in self.stored
            for offset in range(batch.first, batch.last + 1)
        }
        self.counts = {
            offset: counts.get(offset, 0) for offset in self.counts if offset not in self.done
        }

    def check(self) -> None:
        machine = self.machine
        units = list(machine.units())
        for before, after in itertools.pairwise(units):
            assert before.last < after.first, "units overlap"
        states = {
            offset: unit.delivery
            for unit in units
            for offset in range(max(unit.first, machine.start), unit.last + 1)
        }
        assert machine.complete == sum(each.state in OVER for each in states.values())
        locked = {
            offset: each.member
            for offset, each in states.items()
            if each.state is RecordState.ACQUIRED
        }
        assert locked == self.owners
        existing = {offset for batch in self.log for offset in range(batch.first, batch.last + 1)}
        assert all(offset in self.done for offset in existing if offset < machine.start), (
            "the start has passed a record that is not over"
        )
        if machine.start <= machine.end and machine.start in states:
            assert states[machine.start].state not in OVER
        # The stored state, read by a new leader, knows of every record that is over.
        loaded = SharePartition(self.start, self.stored)
        for offset in self.done & existing:
            found = loaded.state_of(offset)
            assert offset < loaded.start or (found is not None and found.state in OVER)

    def drain(self) -> None:
        """Accept all that is left, which must be every record of the log."""
        for _ in range(2_000):
            self.now += 2
            for unit in self.machine.due(self.now):
                self.machine.apply(self.machine.expire(unit, self.settings))
                self.freed(range(unit.first, unit.last + 1))
            offset = self.machine.next_fetch_offset()
            if offset >= self.end:
                break
            read = [batch for batch in self.log if batch.last >= offset][:2]
            found = self.machine.acquire("D", read, ALL, self.settings, self.now)
            acks = [Ack(first, last, (1,)) for first, last, _ in found]
            self.machine.apply(self.machine.acknowledge("D", acks, self.settings, self.now))
            self.done.update(n for first, last, _ in found for n in range(first, last + 1))
        existing = {offset for batch in self.log for offset in range(batch.first, batch.last + 1)}
        assert existing <= self.done
        assert self.machine.start >= self.end


@pytest.mark.parametrize("seed", range(40))
def test_random_lives_keep_the_invariants(seed: int) -> None:
    life = Life(seed)
    for _ in range(150):
        life.step()
    life.drain()


def acquired(machine: SharePartition, last: int, limit: AcquireLimit = ALL) -> None:
    machine.acquire("A", [ReadBatch(0, last)], limit, S, 0.0)


def test_ranges_that_do_not_fit_are_refused() -> None:
    for acks in (
        [Ack(3, 2, (1,))],
        [Ack(0, 2, (1, 1))],
        [Ack(0, 0, ())],
        [Ack(0, 0, (5,))],
        [Ack(0, 0, (-1,))],
        [Ack(4, 5, (1,)), Ack(3, 3, (1,))],
        [Ack(-2, 5, (1,))],
    ):
        with pytest.raises(AckError) as refusal:
            check_acks(acks)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_range_beyond_the_window_costs_nothing() -> None:
    machine = SharePartition(0)
    acquired(machine, 9)
    with pytest.raises(AckError, match="last offset"):
        machine.acknowledge("A", [Ack(0, 1 << 62, (1,))], S, 0.0)
    assert machine.acknowledge("A", [Ack(0, 9, (1,))], S, 0.0).batches == [StateBatch(0, 9, 2, 1)]


def test_a_wrong_offset_keeps_only_the_renewals_before_it() -> None:
    machine = SharePartition(0)
    acquired(machine, 3)
    acks = [Ack(0, 0, (4,)), Ack(1, 1, (1,)), Ack(9, 9, (1,))]
    with pytest.raises(AckError, match="past acquired"):
        machine.acknowledge("A", acks, S, 0.5)
    assert [unit.first for unit in machine.due(1.2)] == [1, 2, 3]


def test_dead_letters_go_through_a_state_of_their_own() -> None:
    machine = SharePartition(0)
    settings = ShareSettings(has_letters=True, delivery_limit=2)
    machine.acquire("A", [ReadBatch(0, 2)], ALL, settings, 0.0)
    change = machine.acknowledge("A", [Ack(0, 0, (3,)), Ack(1, 2, (2,))], settings, 0.0)
    assert change.batches == [StateBatch(0, 0, 3, 1), StateBatch(1, 2, 0, 1)]
    assert [message for _, message in change.letters] == ["Offset rejected by client."]
    machine.apply(change)
    # A new leader finds it unfinished.
    loaded = SharePartition(0, change.batches)
    assert [unit.first for unit in loaded.archiving()] == [0]
    loaded.apply(loaded.archive(loaded.archiving()))
    assert loaded.start == 1
    machine.acquire("B", [ReadBatch(0, 2)], ALL, settings, 0.0)
    change = machine.release("B", settings)
    assert {message for _, message in change.letters} == {
        "Offset delivery count exceeded the threshold."
    }


def test_records_below_the_start_of_the_log_are_given_up() -> None:
    machine = SharePartition(0)
    acquired(machine, 9)
    machine.apply(machine.acknowledge("A", [Ack(4, 5, (2,))], S, 0.0))
    machine.on_log_start(8)
    assert (machine.start, machine.next_fetch_offset()) == (8, 10)
    assert machine.acknowledge("A", [Ack(0, 7, (1,))], S, 0.0).moves == []
    machine.on_log_start(20)
    assert machine.next_fetch_offset() == 20


def test_the_window_stops_at_its_limit() -> None:
    machine = SharePartition(0)
    read = [ReadBatch(first, first + 9) for first in range(0, 200, 10)]
    assert machine.acquire("A", read, ALL, S, 0.0) == [(0, 59, 1)]
    assert not machine.has_room(60)
    machine.apply(machine.acknowledge("A", [Ack(30, 59, (1,))], S, 0.0))
    assert not machine.has_room(60)
    machine.apply(machine.acknowledge("A", [Ack(7, 7, (2,))], S, 0.0))
    assert machine.has_room(60)
    assert machine.acquire("B", read, ALL, S, 0.0) == [(7, 7, 2)]
