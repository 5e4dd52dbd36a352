"""Records handed out one by one: iteration, without moving positions past what was not given.

Ctrl-C may strike between any two steps of this. So what changes is changed in an order, and undone
in a way, that no record is lost by one interrupt: neither forgotten here nor passed by a position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from kohort.records import ConsumerRecord
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

Record = ConsumerRecord[Any, Any]
Records = dict[TopicPartition, list[Record]]


class _Held:
    """One partition's records, those before ``index`` given, and where its position ends."""

    __slots__ = ("end", "epoch", "index", "records", "topic_partition")

    def __init__(self, tp: TopicPartition, epoch: int, records: list[Record], end: int) -> None:
        self.topic_partition = tp
        self.epoch = epoch
        self.records = records
        self.index = 0
        self.end = end

    @property
    def over(self) -> bool:
        """All of it was given."""
        return self.index == len(self.records)

    def give(self, state: PartitionState, count: int) -> list[Record]:
        """The next records, the position behind them."""
        records = self.records
        index = min(self.index + count, len(records))
        given = records[self.index : index]
        position = records[index].offset if index < len(records) else self.end
        epoch = given[-1].leader_epoch
        # From here on nothing is called: signal handlers run in calls.
        self.index, state.position, state.leader_epoch = index, position, epoch
        return given


class Handout:
    """What was drained for iteration and not given yet; one queue for each partition.

    Positions go back to the first record held, and forward with each record given. A partition
    that was sought or revoked meanwhile loses what is held of it; a paused one keeps it. While
    ``may_deliver`` is False, everything is kept and nothing given. Whatever changes what is held,
    but for step(), rings the subscription's bell.
    """

    def __init__(
        self, subscription: SubscriptionState, may_deliver: Callable[[], bool] = lambda: True
    ) -> None:
        self._subscription = subscription
        self._may_deliver = may_deliver
        self._held: deque[_Held] = deque()
        self.latest: tuple[_Held, PartitionState] | None = None
        """What the last record of next() or step() was of."""
        self.bell = subscription.bell
        self.given = 0
        """How many records next() has given."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def load(self, drained: Records, *, given_back: bool = False) -> None:
        """Hold what a drain returned; of a partition that is held already, nothing.

        ``given_back``: it was given once, but did not arrive; so it comes before what is held.
        """
        self.bell.ring()
        with self._subscription.lock:
            for tp, records in drained.items():
                state = self._subscription.partition(tp)
                if state is None or state.position is None:
                    continue
                held = self._of(tp, state.epoch)
                if held is None:
                    end = max(state.position, records[-1].offset + 1)
                    state.position = records[0].offset
                    self._held.append(_Held(tp, state.epoch, records, end))
                    continue
                if given_back:
                    held.records, held.index = records + held.records[held.index :], 0
                state.position = held.records[held.index].offset

    def next(self, partitions: Collection[TopicPartition] | None = None) -> Record | None:
        """Give the next record; None when nothing is held that may be given."""
        self.bell.ring()
        return self._next(partitions)

    def _next(self, partitions: Collection[TopicPartition] | None = None) -> Record | None:
        if not self._held or not self._may_deliver():
            return None
        with self._subscription.lock:
            for _ in range(len(self._held)):
                held = self._held[0]
                state = self._state(held)
                if state is None or held.over:
                    self._held.popleft()
                elif self._may_give(held, state, partitions):
                    (record,) = held.give(state, 1)
                    self.latest = held, state
                    self.given += 1
                    return record
                else:
                    self._held.rotate(-1)
        return None

    def ready(self, partitions: Collection[TopicPartition] | None = None) -> bool:
        """next() has a record to give."""
        if not self._held or not self._may_deliver():
            return False
        with self._subscription.lock:
            return any(
                state is not None and not held.over and self._may_give(held, state, partitions)
                for held in self._held
                for state in [self._state(held)]
            )

    def step(self) -> Record | None:
        """As next(), for a caller who is done with the record before this one by coming back."""
        if self.latest is not None:
            with self._subscription.lock:
                self.latest[1].note_consumed()
        return self._next()

    def take_back(self) -> None:
        """The record that was given last did not arrive."""
        if self.latest is None:
            return
        (held, state), self.latest = self.latest, None
        self.bell.ring()
        with self._subscription.lock:
            if held.index and self._state(held) is state:
                held.index -= 1
                state.position = held.records[held.index].offset
                if held not in self._held:
                    self._held.appendleft(held)

    def give_up(self) -> bool:
        """Let go of what is held: it will be fetched anew, as bytes. True if there was any."""
        with self._subscription.lock:
            given_up = False
            for held in self._held:
                state = self._state(held)
                if state is not None and not held.over:
                    self._subscription.fetch_anew(state)
                    given_up = True
            self._held.clear()
            self._latest = None
        return given_up

    def take(
        self, max_records: int, partitions: Collection[TopicPartition] | None = None
    ) -> Records:
        """Give up to ``max_records`` at once, for a poll() between two steps of iteration."""
        taken: Records = {}
        if not self._may_deliver():
            return taken
        self.bell.ring()
        try:
            with self._subscription.lock:
                for held in list(self._held):
                    state = self._state(held)
                    if state is None or held.over:
                        self._held.remove(held)
                    elif max_records > 0 and self._may_give(held, state, partitions):
                        given = taken[held.topic_partition] = held.give(state, max_records)
                        max_records -= len(given)
        except BaseException:
            self.load(taken, given_back=True)
            raise
        return taken

    def _of(self, tp: TopicPartition, epoch: int) -> _Held | None:
        for held in self._held:
            if held.topic_partition == tp and held.epoch == epoch and not held.over:
                return held
        return None

    def _state(self, held: _Held) -> PartitionState | None:
        return self._subscription.current(held.topic_partition, held.epoch)

    def _may_give(
        self, held: _Held, state: PartitionState, partitions: Collection[TopicPartition] | None
    ) -> bool:
        return state.fetchable and (partitions is None or held.topic_partition in partitions)
