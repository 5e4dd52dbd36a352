"""What a failing test shows besides its error: its consumers, and the timeline of each group."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from kohort.consumer.api._observers import observers
from kohort.history import replay_history, to_text
from kohort.history._records import offsets_partition

if TYPE_CHECKING:
    from kohort.broker.cluster._cluster_state import ClusterState
    from kohort.consumer.api._base import ConsumerBase
    from kohort.testing import Cluster

MOST_CONSUMERS = 10
MOST_LINES = 60
"""Lines of a timeline. Its end is shown, because the failure is there."""
OFFSETS = "__consumer_offsets"


class FailureReport:
    """The consumers and groups of a test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumers: WeakKeyDictionary[ConsumerBase, tuple[str, str] | None]
        self._consumers = WeakKeyDictionary()
        """Consumers, and their sections if an exception has left their block."""

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Note the consumers that are created in the block."""
        observers.append(self)
        try:
            yield
        finally:
            observers.remove(self)

    def opened(self, consumer: ConsumerBase) -> None:
        self._consumers[consumer] = None

    def failing(self, consumer: ConsumerBase) -> None:
        self._consumers[consumer] = _section(consumer)

    def sections(self) -> Iterator[tuple[str, str]]:
        """Yield titles and texts. A part that cannot be read says why."""
        consumers = list(self._consumers.items())
        for consumer, section in consumers[-MOST_CONSUMERS:]:
            yield section or _section(consumer)
        try:
            timelines = [*self._timelines()]
        except Exception as error:  # the test itself may have broken the cluster
            timelines = [("timeline of the groups", f"it cannot be read: {error}")]
        yield from timelines

    def _timelines(self) -> Iterator[tuple[str, str]]:
        groups, names, partitions = self._cluster._read(_groups)
        until_ms = round(self._cluster.wall_clock() * 1000)
        for group_id in groups:
            records = self._cluster.records(OFFSETS, offsets_partition(group_id, partitions))
            rows = ((each.offset, each.timestamp, each.key, each.value) for each in records)
            history = replay_history(group_id, names, rows, 0, until_ms)
            if history is not None:
                lines = to_text(history).splitlines()
                left = ["..."] if len(lines) > MOST_LINES else []
                yield f"timeline of group {group_id!r}", "\n".join([*left, *lines[-MOST_LINES:]])


def _groups(state: ClusterState) -> tuple[list[str], dict[uuid.UUID, str], int]:
    """Return the groups, the names of topics by their ids, and the partitions of the offsets."""
    groups = sorted(name for each in state.brokers.values() for name in each.coordinator.groups)
    names = {uuid.UUID(bytes=topic.id): topic.name for topic in state.topics}
    offsets = state.topics.get(OFFSETS)
    return groups, names, 0 if offsets is None else len(offsets.partitions)


def _section(consumer: ConsumerBase) -> tuple[str, str]:
    try:
        text = str(consumer.explain())
    except Exception as error:  # it may be half made, or of another process
        text = f"it cannot be explained: {error}"
    return f"explain() of {consumer!r}", text
