"""The cluster's topics, as a group coordinator sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from kohort.types import NamedTuple


class TopicInfo(NamedTuple):
    """A topic: name, id, and the racks of the replicas of each partition."""

    name: str
    topic_id: bytes
    racks: Sequence[Sequence[str]]
    """Racks by partition; the length is the number of partitions."""


class GroupTopicView(Protocol):
    """Look-ups of topics.

    ``version`` grows with every change of a topic. ``creation_version`` is the version of the last
    creation of a topic.
    """

    @property
    def version(self) -> int: ...

    @property
    def creation_version(self) -> int: ...

    def named(self, name: str) -> TopicInfo | None:
        """Return the topic with this name, None if there is none."""

    def identified(self, topic_id: bytes) -> TopicInfo | None:
        """Return the topic with this id, None if there is none."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""


class NoTopics:
    """View of a cluster without topics."""

    version = 0
    creation_version = 0

    def named(self, name: str) -> TopicInfo | None:
        """Return None."""
        return None

    def identified(self, topic_id: bytes) -> TopicInfo | None:
        """Return None."""
        return None

    def names(self) -> Iterable[str]:
        """Return no names."""
        return ()
