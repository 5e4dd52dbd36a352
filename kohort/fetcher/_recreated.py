"""Partitions of topics that were deleted and created again: the error after the old records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from kohort.errors import TopicRecreatedError
from kohort.fetcher.buffer._completed import FailedFetch
from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.logs import get_logger
from kohort.subscription import RecreatedPartition, SubscriptionState
from kohort.types import TopicPartition

logger = get_logger("kohort.fetcher")


class RecreatedTopics:
    """The TopicRecreatedError after the fetched records of each partition of such a topic.

    After the caller has taken these records, the drain raises the error, or continues from the
    beginning of the new topic.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        queues: PartitionQueues,
        *,
        on_ready: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._queues = queues
        self._on_ready = on_ready
        self._appended: dict[TopicPartition, tuple[int, bytes]] = {}

    def append_errors(self) -> None:
        """Append the errors that are missing, and log each recreation once."""
        found = [
            each
            for each in self._subscription.recreated_partitions()
            if self._appended.get(each.topic_partition) != (each.epoch, each.new_id)
        ]
        if not found:
            return
        for each in found:
            tp, epoch = each.topic_partition, each.epoch
            self._appended[tp] = epoch, each.new_id
            error = recreated_error(tp, each.position, each.old_id, each.new_id)
            self._queues.append(FailedFetch(tp, epoch, error, is_transient=False))
        by_topic: defaultdict[tuple[str, bytes], list[RecreatedPartition]] = defaultdict(list)
        for each in found:
            by_topic[each.topic_partition.topic, each.new_id].append(each)
        for (topic, new_id), partitions in by_topic.items():
            if self._subscription.history.needs_log(topic, new_id):
                self._log(topic, partitions)
        self._on_ready()

    def _log(self, topic: str, partitions: list[RecreatedPartition]) -> None:
        from uuid import UUID

        if self._subscription.default_reset.reads_recreated:
            outcome = "the new topic is read from its beginning"
        else:
            outcome = "poll() raises TopicRecreatedError for each partition until a seek()"
        logger.warning(
            "topic %s was deleted and created again: its id was %s and is now %s. Positions in "
            "the old topic are no longer valid, and %s. The positions by partition are %s",
            topic,
            UUID(bytes=partitions[0].old_id),
            UUID(bytes=partitions[0].new_id),
            outcome,
            ", ".join(f"{p.topic_partition.partition}: {p.position}" for p in partitions),
        )


def recreated_error(
    tp: TopicPartition, position: int | None, old_id: bytes, new_id: bytes
) -> TopicRecreatedError:
    """Return the error for a partition whose topic has another id than when it was read."""
    from uuid import UUID

    old, new = UUID(bytes=old_id), UUID(bytes=new_id)
    void = "" if position is None else f" Position {position} belongs to the old topic."
    return TopicRecreatedError(
        f"{tp.topic}-{tp.partition}: the topic was deleted and created again: its id was {old} "
        f"and is now {new}.{void} Other partitions continue. Call seek({tp}, 0) to read the new "
        'topic from its beginning, as auto_offset_reset "earliest" and "latest" do',
        topic_partition=tp,
        offset=position,
        old_topic_id=old,
        new_topic_id=new,
    )
