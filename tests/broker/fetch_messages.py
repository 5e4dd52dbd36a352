"""Fetch requests, and the results in their responses by partition."""

from __future__ import annotations

from typing import Any

from kohort.protocol.messages import FetchRequest, FetchResponse


def request(
    *partitions: tuple[int, int],
    topic: str = "t",
    id: bytes = bytes(16),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    isolation: int = 0,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    """Return a request. ``partitions`` has number and offset, ``session`` id and epoch."""
    asked = [
        FetchRequest.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=epoch,
        )
        for partition, offset in partitions
    ]
    topics = [FetchRequest.FetchTopic(topic=topic, topic_id=id, partitions=asked)]
    options: dict[str, Any] = {}
    if forgotten:
        options["forgotten_topics_data"] = [
            FetchRequest.ForgottenTopic(topic=topic, topic_id=id, partitions=list(forgotten))
        ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics if asked else [],
        **options,
    )


def data(response: FetchResponse) -> dict[int, FetchResponse.PartitionData]:
    return {
        entry.partition_index: entry for topic in response.responses for entry in topic.partitions
    }
