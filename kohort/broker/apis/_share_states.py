"""What the requests to share coordinators have in common: results and messages of partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kohort.broker.apis._registry import Context
from kohort.broker.share import ShareKey
from kohort.errors import ErrorCode

R = TypeVar("R")

MAX_OFFSETS = 1 << 20
"""Most offsets that the state of a share-partition may have, far above every limit of locks."""
_MESSAGES = {
    ErrorCode.FENCED_STATE_EPOCH: (
        "The coordinator rejected the request because the state epoch did not match."
    ),
    ErrorCode.FENCED_LEADER_EPOCH: (
        "The leader epoch in the request is older than the epoch on the broker."
    ),
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


def state_message(error: ErrorCode, invalid: str | None = None) -> str | None:
    """Return Kafka's message for an error; ``invalid`` is that for INVALID_REQUEST."""
    return invalid if error is ErrorCode.INVALID_REQUEST else _MESSAGES.get(error)


def by_partition(
    request: Any, result: Callable[..., R], answer: Callable[[ShareKey, Any], object]
) -> list[R]:
    """Return the answers to all entries of a request, in a result for each topic.

    As in Kafka, a request without a group gets none.
    """
    if not request.group_id:
        return []
    return [
        result(
            topic_id=topic.topic_id,
            partitions=[
                answer(ShareKey(request.group_id, bytes(topic.topic_id), entry.partition), entry)
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def change_refusal(ctx: Context, group_id: str) -> tuple[ErrorCode, str | None]:
    """Return why the offsets of a group cannot be changed, with Kafka's message."""
    error = ctx.broker.coordinator.check_share_change(group_id)
    return error, "The group is not empty." if error is ErrorCode.NON_EMPTY_GROUP else None


def check_partition(ctx: Context, key: ShareKey) -> ErrorCode:
    """Return an error unless the partition exists."""
    topic = ctx.broker.cluster.topics.by_id(key.topic_id)
    exists = topic is not None and 0 <= key.partition < len(topic.partitions)
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def has_valid_offsets(ranges: Sequence[tuple[int, int]]) -> bool:
    """True if ranges of offsets are in order, and not more than a state may have."""
    return (
        all(0 <= first <= last for first, last in ranges)
        and sum(last - first + 1 for first, last in ranges) <= MAX_OFFSETS
    )
