"""The broker to read each partition from: its leader, or a follower that the leader names."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.fetcher._environment import FetchCluster, LeaderView
from kohort.fetcher._retries import Retries
from kohort.protocol import ZERO_UUID
from kohort.transport import Backoff, BrokerAddress, Leader
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse

LEADER_ONLY_SECONDS = 10.0
"""Seconds for which a partition is read from its leader after a follower failed."""
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Leaders:
    """Leaders by the cluster metadata.

    The back-off applies only to refreshes. A leader that appears meanwhile is used at once.
    """

    def __init__(self, cluster: FetchCluster, backoff: Backoff, rng: random.Random) -> None:
        self._cluster = cluster
        self._refreshes: Retries[TopicPartition] = Retries(backoff, rng)

    @property
    def metadata(self) -> LeaderView:
        """The metadata snapshot in use. A new snapshot is another object."""
        return self._cluster.metadata

    def find(self, tp: TopicPartition) -> Leader | None:
        """Return the leader, or None if there is none or the metadata lacks the partition."""
        leader = self._cluster.metadata.leader(tp)
        if leader is not None:
            self._refreshes.succeeded(tp)
        return leader

    def topic_id(self, topic: str) -> bytes:
        """Return the id of a topic (KIP-516), or zeros if it has none or is unknown."""
        known = self._cluster.metadata.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def has_newer_leader(self, tp: TopicPartition, leader_epoch: int) -> bool:
        """True if there is a newer leader than that of this epoch, so no back-off is needed."""
        leader = self._cluster.metadata.leader(tp)
        return leader is not None and leader.epoch > leader_epoch

    def learn(
        self,
        response: FetchResponse,
        partitions: Mapping[TopicPartition, FetchResponse.PartitionData],
    ) -> None:
        """Use the leaders that a broker names when it is no longer the leader (KIP-951)."""
        leaders = {
            tp: Leader(data.current_leader.leader_id, data.current_leader.leader_epoch)
            for tp, data in partitions.items()
            if data.error_code in _MOVED and data.current_leader.leader_id >= 0
        }
        if leaders:
            self._cluster.learn_leaders(
                leaders,
                map(BrokerAddress.of, response.node_endpoints),
            )

    def is_replica(self, tp: TopicPartition, node: int) -> bool:
        """True if the broker has an online replica of the partition by the metadata."""
        topic = self._cluster.metadata.topics.get(tp.topic)
        known = None if topic is None else topic.partitions.get(tp.partition)
        return known is not None and node in known.replicas and node not in known.offline

    def request_refresh(self, tp: TopicPartition, now: float) -> float:
        """Request a metadata refresh after the back-off, and return the time of the next check."""
        at = self._refreshes.not_before(tp)
        if at <= now:
            self._cluster.request_refresh()
            at = self._refreshes.failed(tp, now)
        return at

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the refreshes for all other partitions."""
        self._refreshes.keep_only(partitions)


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
        self.chosen: dict[TopicPartition, _ReplicaChoice] = {}
        """The choices of partitions. All others are read from their leaders."""
        self._kept_on_leader: dict[TopicPartition, None] = {}

    def find(self, tp: TopicPartition, leader: Leader, now: float) -> int:
        """Return the broker to read from."""
        chosen = self.chosen.get(tp)
        if chosen is None:
            return leader.node
        if chosen.leader != leader or now >= chosen.until:
            del self.chosen[tp]
            self._kept_on_leader.pop(tp, None)
            return leader.node
        return chosen.node

    def read_from(self, tp: TopicPartition, node: int, leader: Leader, now: float) -> None:
        """Read from the replica that the leader names."""
        self._choose(tp, _ReplicaChoice(node, leader, now + self._max_age))

    def leave_follower(self, tp: TopicPartition, node: int, now: float) -> bool:
        """Read from the leader after a broker failed, and return True if it was the follower."""
        chosen = self.chosen.get(tp)
        if chosen is None or chosen.node != node or node == chosen.leader.node:
            return False
        self.keep_on_leader(tp, chosen.leader, now)
        return True

    def keep_on_leader(self, tp: TopicPartition, leader: Leader, now: float) -> None:
        """Read from the leader for ``LEADER_ONLY_SECONDS``, whatever replica it names."""
        self._choose(tp, _ReplicaChoice(leader.node, leader, now + LEADER_ONLY_SECONDS))

    def _choose(self, tp: TopicPartition, choice: _ReplicaChoice) -> None:
        self.chosen[tp] = choice
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
        chosen = self.chosen.get(tp)
        return None if chosen is None else chosen.until

    def chosen_node(self, tp: TopicPartition) -> int | None:
        """Return the chosen broker, or None without a choice. Any thread may call it."""
        chosen = self.chosen.get(tp)
        return None if chosen is None else chosen.node

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions."""
        for tp in [tp for tp in self.chosen if tp not in partitions]:
            del self.chosen[tp]
            self._kept_on_leader.pop(tp, None)
