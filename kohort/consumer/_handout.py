"""Records handed out one by one: iteration, without moving positions past what was not given."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from kohort.records import ConsumerRecord
from kohort.subscription import PartitionState, SubscriptionState
from kohort.types import TopicPartition

Record = ConsumerRecord[Any, Any]


class _Held:
    """The rest of one partition's records, and where its position goes after the last."""

    __slots__ = ("end", "epoch", "records", "topic_partition")

    def __init__(self, tp: TopicPartition, epoch: int, records: list[Record], end: int) -> None:
        self.topic_partition = tp
        self.epoch = epoch
        self.records = deque(records)
        self.end = end


class Handout:
    """What was drained for iteration and not given yet.

    Positions go back to the first record held, and forward with each record given. A partition
    that was sought or revoked meanwhile loses what is held of it; a paused one keeps it.
    """

    def __init__(self, subscription: SubscriptionState) -> None:
        self._subscription = subscription
        self._held: deque[_Held] = deque()
        self._latest: PartitionState | None = None

    def load(
        self, drained: dict[TopicPartition, list[Record]], *, given_back: bool = False
    ) -> None:
        """Hold what a drain returned; ``given_back``: before what is held, it was given once."""
        with self._subscription.lock:
            for tp, records in drained.items():
                state = self._subscription.partition(tp)
                if state is None or state.position is None:
                    continue
                rest = self._rest_of(tp, state.epoch) if given_back else None
                if rest is not None:
                    rest.records.extendleft(reversed(records))
                else:
                    self._held.append(_Held(tp, state.epoch, records, state.position))
                state.position = records[0].offset

    def _rest_of(self, tp: TopicPartition, epoch: int) -> _Held | None:
        for held in self._held:
            if held.topic_partition == tp and held.epoch == epoch:
                return held
        return None

    def step(self) -> Record | None:
        """As next(), for a caller who is done with the record before this one by coming back."""
        if self._latest is not None:
            with self._subscription.lock:
                self._latest.note_consumed()
            self._latest = None
        return self.next()

    def next(self, partitions: Collection[TopicPartition] | None = None) -> Record | None:
        """Give the next record; None when nothing is held that may be given."""
        with self._subscription.lock:
            for _ in range(len(self._held)):
                held = self._held[0]
                state = self._state(held)
                if state is None:
                    self._held.popleft()
                elif self._may_give(held, state, partitions):
                    return self._give(held, state)
                else:
                    self._held.rotate(-1)
        return None

    def take(
        self, max_records: int, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Give up to ``max_records`` at once, for a poll() between two steps of iteration."""
        taken: dict[TopicPartition, list[Record]] = {}
        while max_records > 0 and (record := self.next(partitions)) is not None:
            taken.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
            max_records -= 1
        return taken

    def __bool__(self) -> bool:
        return bool(self._held)

    def _state(self, held: _Held) -> PartitionState | None:
        return self._subscription.current(held.topic_partition, held.epoch)

    def _may_give(
        self, held: _Held, state: PartitionState, partitions: Collection[TopicPartition] | None
    ) -> bool:
        return state.fetchable and (partitions is None or held.topic_partition in partitions)

    def _give(self, held: _Held, state: PartitionState) -> Record:
        record = held.records.popleft()
        state.leader_epoch = record.leader_epoch
        if held.records:
            state.position = record.offset + 1
        else:
            state.position = held.end
            self._held.popleft()
        self._latest = state
        return record
