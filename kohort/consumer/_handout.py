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

    def load(self, drained: dict[TopicPartition, list[Record]]) -> None:
        """Hold what a drain returned."""
        with self._subscription.lock:
            for tp, records in drained.items():
                state = self._subscription.partition(tp)
                if state is None or state.position is None:
                    continue
                self._held.append(_Held(tp, state.epoch, records, state.position))
                state.position = records[0].offset

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
        return record
