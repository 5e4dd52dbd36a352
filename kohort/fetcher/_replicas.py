"""The replica to read each partition from: its leader, or a follower that the leader names."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kohort.transport import Leader
from kohort.types import TopicPartition

LEADER_ONLY_SECONDS = 10.0
"""Seconds for which a partition is read from its leader after a follower failed."""


class _ReplicaChoice(NamedTuple):
    node: int
    leader: Leader
    until: float


class Replicas:
    """Followers in the client's rack (KIP-392).

    The choice of a leader is valid for ``max_age`` seconds, and ends with its leadership. A
    follower that fails is not used for ``LEADER_ONLY_SECONDS``. Requests to its leader omit the
    rack in that time, because the leader would name the same follower again.
    """

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._chosen: dict[TopicPartition, _ReplicaChoice] = {}
        self._kept_on_leader: dict[TopicPartition, None] = {}

    def find(self, tp: TopicPartition, leader: Leader, now: float) -> int:
        """Return the broker to read from."""
        chosen = self._chosen.get(tp)
        if chosen is None:
            return leader.node
        if chosen.leader != leader or now >= chosen.until:
            del self._chosen[tp]
            self._kept_on_leader.pop(tp, None)
            return leader.node
        return chosen.node

    def read_from(self, tp: TopicPartition, node: int, leader: Leader, now: float) -> None:
        """Read from the replica that the leader names."""
        self._choose(tp, _ReplicaChoice(node, leader, now + self._max_age))

    def leave_follower(self, tp: TopicPartition, node: int, now: float) -> bool:
        """Read from the leader after a broker failed, and return True if it was the follower."""
        chosen = self._chosen.get(tp)
        if chosen is None or chosen.node != node or node == chosen.leader.node:
            return False
        self.keep_on_leader(tp, chosen.leader, now)
        return True

    def keep_on_leader(self, tp: TopicPartition, leader: Leader, now: float) -> None:
        """Read from the leader for ``LEADER_ONLY_SECONDS``, whatever replica it names."""
        self._choose(tp, _ReplicaChoice(leader.node, leader, now + LEADER_ONLY_SECONDS))

    def _choose(self, tp: TopicPartition, choice: _ReplicaChoice) -> None:
        self._chosen[tp] = choice
        if choice.node == choice.leader.node:
            self._kept_on_leader[tp] = None
        else:
            self._kept_on_leader.pop(tp, None)

    def is_kept_on_leader(self, tp: TopicPartition) -> bool:
        """True if the leader must not name a follower."""
        return tp in self._kept_on_leader

    def any_kept_on_leader(self, partitions: Collection[TopicPartition]) -> bool:
        """True if one of these partitions must be read from its leader."""
        return bool(self._kept_on_leader) and any(tp in partitions for tp in self._kept_on_leader)

    def until(self, tp: TopicPartition) -> float | None:
        """Return the time at which the choice for the partition ends, or None without a choice."""
        chosen = self._chosen.get(tp)
        return None if chosen is None else chosen.until

    def chosen_node(self, tp: TopicPartition) -> int | None:
        """Return the chosen broker, or None without a choice. Any thread may call it."""
        chosen = self._chosen.get(tp)
        return None if chosen is None else chosen.node

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for tp in [tp for tp in self._chosen if tp not in partitions]:
            del self._chosen[tp]
            self._kept_on_leader.pop(tp, None)
