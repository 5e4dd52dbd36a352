"""The rules of the offset reset for partitions without committed offsets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from kohort.config import FetchConfig
from kohort.errors import ErrorCode
from kohort.subscription import NO_ID, OffsetReset, SubscriptionState
from kohort.transport import ClusterMetadata, TopicMetadata
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.consumer")

UPDATES_UNTIL_KNOWN = 3
"""Number of metadata updates without a partition after which it counts as new in any case.

Before that it counts as new only in leader epoch 0, because a broker that has just started may not
know all partitions."""
ABSENT_CODES = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
"""The error codes of a topic without partitions: it does not exist or is being created."""


class _SeenTopic:
    """The state of a topic when its subscription began."""

    __slots__ = ("partitions", "topic_id", "updates")

    def __init__(self, topic_id: bytes, partitions: set[int], answers: int) -> None:
        self.topic_id = topic_id
        self.partitions = partitions
        self.updates = answers


class TopicBaseline:
    """The topics and partitions that existed when the subscription began.

    Topics that are no longer subscribed to are removed. A pattern covers all topics from its first
    metadata on, so a topic that it matches later did not exist before.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _SeenTopic] = {}
        self._pattern: object = None
        self._updates = 0
        self._latest: ClusterMetadata | None = None

    def observe(
        self, metadata: ClusterMetadata, wanted: Collection[str], pattern: object = None
    ) -> None:
        """Add the wanted topics as the metadata shows them. ``pattern`` is what matched them."""
        if pattern is not self._pattern:
            self._pattern, self._updates = pattern, 0
            self._topics.clear()
        if pattern is None:
            for topic in [topic for topic in self._topics if topic not in wanted]:
                del self._topics[topic]
        later = pattern is not None and self._updates > 0
        answered = metadata is not self._latest
        self._updates += answered or not later
        self._latest = metadata
        for topic in wanted:
            known = metadata.topics.get(topic)
            if known is None or (known.error not in ABSENT_CODES and not known.partitions):
                continue
            seen = self._topics.get(topic)
            if seen is None:
                seen = self._topics[topic] = _SeenTopic(NO_ID, set(), self._updates if later else 0)
                if not later:
                    seen.partitions.update(known.partitions)
            if seen.updates < UPDATES_UNTIL_KNOWN:
                seen.partitions.update(_not_new(known, seen))
            if known.partitions and seen.topic_id == NO_ID:
                seen.topic_id = known.topic_id
            seen.updates += answered

    def is_new(self, tp: TopicPartition, topic_id: bytes) -> bool | None:
        """Return True if the partition did not exist; None while that is unknown."""
        seen = self._topics.get(tp.topic)
        if seen is None:
            return None
        other = NO_ID not in (topic_id, seen.topic_id) and topic_id != seen.topic_id
        return other or tp.partition not in seen.partitions


def _not_new(known: TopicMetadata, seen: _SeenTopic) -> Collection[int]:
    """Return the partitions that appeared late, if one of them has had several leaders."""
    if seen.topic_id not in (NO_ID, known.topic_id):
        return ()
    late: Mapping[int, int] = {
        number: partition.leader_epoch
        for number, partition in known.partitions.items()
        if number not in seen.partitions
    }
    return late if any(epoch > 0 for epoch in late.values()) else ()


class FirstPositionRules:
    """The rules for the first position of each partition."""

    def __init__(self, subscription: SubscriptionState, config: FetchConfig) -> None:
        self.baseline = TopicBaseline()
        self._subscription = subscription
        self._rule_for_new = _rule_for_new_partitions(config)

    def rule_for(self, tp: TopicPartition) -> OffsetReset | None:
        """Return the rule for a partition without a committed offset; None while unknown."""
        subscription = self._subscription
        history, rule = subscription.history, subscription.default_reset
        old, now = history.last_position_id(tp), history.current_id(tp.topic)
        if NO_ID not in (old, now) and old != now:
            return self._rule_for_recreated(tp.topic, old, now)
        if rule == self._rule_for_new:
            return rule
        new = self.baseline.is_new(tp, now)
        if new is None:
            return None
        return self._rule_for_new if new else rule

    def _rule_for_recreated(self, topic: str, old: bytes, now: bytes) -> OffsetReset:
        """Return the rule for a recreated topic whose predecessor this consumer has read.

        See :class:`RecreatedTopics`.
        """
        if not self._subscription.default_reset.reads_recreated:
            return OffsetReset.NONE
        if self._subscription.history.needs_log(topic, now):
            from uuid import UUID

            logger.warning(
                "topic %s was deleted and created again since this consumer read it: its id was %s "
                "and is now %s. The new topic is read from its beginning",
                topic,
                UUID(bytes=old),
                UUID(bytes=now),
            )
        return OffsetReset.EARLIEST


def _rule_for_new_partitions(config: FetchConfig) -> OffsetReset:
    chosen = config.auto_offset_reset_new_partitions
    if chosen is None:
        chosen = "none" if config.auto_offset_reset == "none" else "earliest"
    elif chosen == "auto_offset_reset":
        chosen = config.auto_offset_reset
    return OffsetReset.from_option(chosen)
