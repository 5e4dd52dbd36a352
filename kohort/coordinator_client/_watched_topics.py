"""The topics of the group that the leader watches in the cluster's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kohort.coordinator_client._broker_racks import BrokerRacks, known_topics
from kohort.coordinator_client._cluster_view import GroupCluster, MetadataView, TopicIdHistory
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.coordinator_client.machine._events import TopicIdsSeen, TopicsChanged
from kohort.types import TopicPartition


class WatchedTopics:
    """The topics of all members, while this member is the leader. Otherwise there are none."""

    def __init__(
        self,
        cluster: GroupCluster,
        history: TopicIdHistory,
        on_change: Callable[[frozenset[str]], None] | None,
        racks: BrokerRacks,
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._on_change = on_change
        self._racks = racks
        self._topics: frozenset[str] = frozenset()
        self._last = ClusterTopics({})

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    @topics.setter
    def topics(self, topics: frozenset[str]) -> None:
        self._topics = topics
        if not topics:
            self._last = ClusterTopics({})

    def notify(self) -> None:
        """Call ``on_change`` with the topics."""
        if self._on_change is not None:
            self._on_change(self._topics)

    def note_assigned(self, topics: ClusterTopics) -> None:
        """Note the topics and partitions that the assignor assigned."""
        if self._topics:
            self._last = topics

    def apply(self, metadata: MetadataView | None) -> TopicsChanged | None:
        """Return the topics as they are in the metadata, or None if none are watched.

        A topic that the metadata does not contain counts as unchanged.
        """
        if not self._topics:
            return None
        metadata = metadata or self._cluster.metadata
        before = self._last
        covered = self._topics & metadata.topics.keys()
        known = self._racks.for_comparison if before.racks else known_topics
        now = known(metadata, covered)
        old_counts = {name: n for name, n in before.partitions.items() if name not in covered}
        old_racks = {tp: racks for tp, racks in before.racks.items() if tp.topic not in covered}
        self._last = ClusterTopics({**old_counts, **now.partitions}, {**old_racks, **now.racks})
        return TopicsChanged(self._last, frozenset(covered))

    def current_ids(self, owned: Iterable[TopicPartition]) -> TopicIdsSeen:
        """Return the current ids of the topics of these partitions."""
        names = {tp.topic for tp in owned}
        return TopicIdsSeen({name: self._history.current_id(name) for name in names})
