"""The topics that a leader watches for changes, with their partitions and the racks of replicas."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from kohort.coordinator_client._cluster_view import GroupCluster, MetadataView, TopicIdHistory
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.coordinator_client.machine._events import TopicIdsSeen, TopicsChanged
from kohort.types import TopicPartition


class BrokerRacks:
    """The racks of the brokers, for assignments and for their comparison with new metadata.

    The metadata leaves out a broker that is away, and its replicas stay. Its rack is the last known
    one. If it was never known, it stays unknown until the next assignment. So neither the restart
    of a broker nor its return is a change of racks.
    """

    def __init__(self) -> None:
        self._racks: dict[int, str | None] = {}
        self._unknown: set[int] = set()
        """Brokers whose racks the latest assignment did not know."""

    def for_assignment(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        """Return the partitions of these topics with all known racks."""
        self._note(metadata)
        self._unknown = {
            node
            for name in names
            if name in metadata.topics
            for partition in metadata.topics[name].partitions.values()
            for node in partition.replicas
            if node not in self._racks
        }
        return self._topics(metadata, names)

    def for_comparison(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        """Return the partitions with the racks that the latest assignment could know."""
        self._note(metadata)
        return self._topics(metadata, names)

    def _note(self, metadata: MetadataView) -> None:
        self._racks.update((node, broker.rack) for node, broker in metadata.brokers.items())

    def _topics(self, metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
        counts = known_topics(metadata, names)
        racks_by_nodes: dict[Collection[int], frozenset[str]] = {}

        def racks_of(replicas: Collection[int]) -> frozenset[str]:
            if replicas not in racks_by_nodes:
                known = (self._racks.get(node) for node in replicas if node not in self._unknown)
                racks_by_nodes[replicas] = frozenset(rack for rack in known if rack)
            return racks_by_nodes[replicas]

        racks = {
            TopicPartition(name, number): racks_of(partition.replicas)
            for name in counts.partitions
            for number, partition in metadata.topics[name].partitions.items()
        }
        return ClusterTopics(counts.partitions, racks)


def known_topics(metadata: MetadataView, names: Iterable[str]) -> ClusterTopics:
    """Return the partitions of these topics that the metadata contains, without racks.

    Topics without partitions are left out.
    """
    found = {name: metadata.topics[name].partitions for name in names if name in metadata.topics}
    return ClusterTopics({name: len(each) for name, each in found.items() if each})


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
