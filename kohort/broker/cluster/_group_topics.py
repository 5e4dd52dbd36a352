"""The topics of a cluster for its group coordinators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kohort.broker.cluster._topics import Topic, Topics
from kohort.broker.groups import TopicInfo


class GroupTopics:
    """View of a cluster's topics with the racks of their replicas.

    ``racks`` has the rack of each broker by its id.
    """

    def __init__(self, topics: Topics, racks: Mapping[int, str | None]) -> None:
        self._topics = topics
        self._racks = racks
        self._known: dict[bytes, TopicInfo] = {}
        self._known_version = -1

    @property
    def version(self) -> int:
        """Number of changes of topics so far."""
        return self._topics.version

    @property
    def creation_version(self) -> int:
        """The version since which the newest topic exists."""
        return self._topics.creation_version

    def named(self, name: str) -> TopicInfo | None:
        """Return the topic with this name, None if there is none."""
        return self._info(self._topics.get(name))

    def identified(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic with this id, None if there is none."""
        return self._info(self._topics.by_id(topic_id))

    def names(self) -> Iterator[str]:
        """Return the names of all topics, also of internal ones."""
        return (topic.name for topic in self._topics)

    def _info(self, topic: Topic | None) -> TopicInfo | None:
        """Return a topic as it is now. It is the same object until a topic changes."""
        if topic is None:
            return None
        if self._known_version != self._topics.version:
            self._known_version = self._topics.version
            self._known.clear()
        found = self._known.get(topic.id)
        if found is None:
            racks = [
                [rack for node in each.replicas if (rack := self._racks.get(node)) is not None]
                for each in topic.partitions
            ]
            found = self._known[topic.id] = TopicInfo(topic.name, topic.id, racks)
        return found
