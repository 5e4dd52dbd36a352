"""Which replica a partition is read from: its leader, or the follower the leader sent us to."""

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

    What a leader said holds for ``max_age`` seconds, and no longer than its leadership. A follower
    that fails in any way is left for a while. Its leader would send us there again, so it is not
    told of the rack in that time.
    """

    def __init__(self, max_age: float) -> None:
        self._max_age = max_age
        self._chosen: dict[TopicPartition, _ReplicaChoice] = {}
        self._kept_on_leader: dict[TopicPartition, None] = {}

    def find(self, tp: TopicPartition, leader: Leader, now: float) -> int:
        """The broker to read from."""
        chosen = self._chosen.get(tp)
        if chosen is None:
            return leader.node
        if chosen.leader != leader or now >= chosen.until:
            del self._chosen[tp]
            self._kept_on_leader.pop(tp, None)
            return leader.node
        return chosen.node

    def read_from(self, tp: TopicPartition, node: int, leader: Leader, now: float) -> None:
        """The leader said where to read instead."""
        self._choose(tp, _ReplicaChoice(node, leader, now + self._max_age))

    def leave_follower(self, tp: TopicPartition, node: int, now: float) -> bool:
        """This broker failed: True if it was a follower, and the leader is read from now."""
        chosen = self._chosen.get(tp)
        if chosen is None or chosen.node != node or node == chosen.leader.node:
            return False
        self.keep_on_leader(tp, chosen.leader, now)
        return True

    def keep_on_leader(self, tp: TopicPartition, leader: Leader, now: float) -> None:
        """Read from the leader for a while, whatever it says."""
        self._choose(tp, _ReplicaChoice(leader.node, leader, now + LEADER_ONLY_SECONDS))

    def _choose(self, tp: TopicPartition, choice: _ReplicaChoice) -> None:
        self._chosen[tp] = choice
        if choice.node == choice.leader.node:
            self._kept_on_leader[tp] = None
        else:
            self._kept_on_leader.pop(tp, None)

    def is_kept_on_leader(self, tp: TopicPartition) -> bool:
        """The leader must not send us elsewhere."""
        return tp in self._kept_on_leader

    def any_kept_on_leader(self, partitions: Collection[TopicPartition]) -> bool:
        """True if one of these stays with its leader."""
        return bool(self._kept_on_leader) and any(tp in partitions for tp in self._kept_on_leader)

    def until(self, tp: TopicPartition) -> float | None:
        """Time when the choice for the partition ends; None if there is none."""
        chosen = self._chosen.get(tp)
        return None if chosen is None else chosen.until

    def chosen_node(self, tp: TopicPartition) -> int | None:
        """The broker that was chosen, if any was; from any thread."""
        chosen = self._chosen.get(tp)
        return None if chosen is None else chosen.node

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget any others."""
        for tp in [tp for tp in self._chosen if tp not in partitions]:
            del self._chosen[tp]
            self._kept_on_leader.pop(tp, None)
