"""The leader of each partition, and metadata refreshes while there is none."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kohort.errors import ErrorCode
from kohort.fetcher._cluster_view import FetchCluster, LeaderView
from kohort.fetcher._retries import Retries
from kohort.protocol import ZERO_UUID
from kohort.transport import Backoff, BrokerAddress, Leader
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.protocol.messages import FetchResponse

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
                [
                    BrokerAddress(each.node_id, each.host, each.port, each.rack)
                    for each in response.node_endpoints
                    if each.node_id >= 0 and each.host and 0 < each.port < 1 << 16
                ],
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
