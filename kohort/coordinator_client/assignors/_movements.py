"""The moves of one assignment, which prevent that two partitions of a topic swap repeatedly."""

from __future__ import annotations

from kohort.coordinator_client.assignors._java import bucket, partition_hash, table_for
from kohort.types import NamedTuple, TopicPartition


class _Move(NamedTuple):
    source: str
    target: str


class _MovedPartitions:
    """The partitions that moved between the same two members.

    :meth:`first` is the first one in the iteration order of a Java HashSet.
    """

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._table = table_for(0)

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def add(self, tp: TopicPartition) -> None:
        self._partitions[tp] = None
        # A Java HashSet never shrinks its table.
        self._table = max(self._table, table_for(len(self._partitions)))

    def remove(self, tp: TopicPartition) -> None:
        del self._partitions[tp]

    def first(self) -> TopicPartition:
        return min(self._partitions, key=lambda tp: bucket(partition_hash(tp), self._table))


class Movements:
    """The moves of one assignment, one for each partition from its first member to its last."""

    def __init__(self) -> None:
        self._move_of: dict[TopicPartition, _Move] = {}
        self._by_topic: dict[str, dict[_Move, _MovedPartitions]] = {}

    def record(self, tp: TopicPartition, source: str, target: str) -> None:
        """Record that the partition moves from ``source`` to ``target``."""
        before = self._move_of.pop(tp, None)
        if before is not None:
            ways = self._by_topic[tp.topic]
            ways[before].remove(tp)
            if not ways[before]:
                del ways[before]
            if before.source == target:
                return  # it is with its first member again
            source = before.source
        move = self._move_of[tp] = _Move(source, target)
        self._by_topic.setdefault(tp.topic, {}).setdefault(move, _MovedPartitions()).add(tp)

    def swap_candidate(self, tp: TopicPartition, source: str, target: str) -> TopicPartition:
        """Return the partition to move instead of ``tp``.

        It is a partition of the same topic that moved in the other direction, else ``tp``.
        """
        before = self._move_of.get(tp)
        if before is not None:
            source = before.source
        back = self._by_topic.get(tp.topic, {}).get(_Move(target, source))
        return tp if back is None else back.first()
