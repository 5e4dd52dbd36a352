"""The requests of a share consumer as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from kohort.coordinator_client.consumer._member import by_topic
from kohort.protocol.messages import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kohort.share.client._settings import ShareSettings
from kohort.share.machine._acquired import AckUnit, AcquiredRange
from kohort.share.machine._membership import JOIN_EPOCH, Answered, IdPartition
from kohort.share.machine._session import SessionRequest

B = TypeVar("B")

WITH_MODES: Final = 2
"""First version of both requests with renewals and the mode of acquiring."""
_BATCHES: Final = 0
_RECORDS: Final = 1


def heartbeat_request(
    settings: ShareSettings, member_id: str, epoch: int, topics: frozenset[str] | None
) -> ShareGroupHeartbeatRequest:
    """Return a heartbeat. ``topics`` is None if the coordinator has them."""
    return ShareGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member_id,
        member_epoch=epoch,
        rack_id=settings.rack if epoch == JOIN_EPOCH else None,
        subscribed_topic_names=None if topics is None else sorted(topics),
    )


def heartbeat_answer(response: ShareGroupHeartbeatResponse) -> Answered:
    """Return the response as an event of the membership."""
    assignment = None
    if response.assignment is not None:
        assignment = frozenset(
            (topic.topic_id, number)
            for topic in response.assignment.topic_partitions
            for number in topic.partitions
        )
    return Answered(
        response.error_code,
        response.member_epoch,
        response.heartbeat_interval_ms / 1000,
        assignment,
        response.error_message,
    )


def fetch_request(
    settings: ShareSettings,
    member_id: str,
    session: SessionRequest,
    units: Mapping[IdPartition, AckUnit],
    has_modes: bool,
    records: int,
) -> ShareFetchRequest:
    """Return a fetch of at most ``records``, which also carries acknowledgements.

    Its batches are those of one poll, because brokers deliver released batches as a whole.
    """
    exact = settings.acquire_mode == "record_limit" and has_modes
    return ShareFetchRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=session.epoch,
        max_wait_ms=settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        max_records=records,
        batch_size=min(records, settings.max_records),
        share_acquire_mode=_RECORDS if exact else _BATCHES,
        topics=[
            ShareFetchRequest.FetchTopic(
                topic_id=topic_id,
                partitions=[
                    ShareFetchRequest.FetchPartition(
                        partition_index=number,
                        acknowledgement_batches=_batches(
                            ShareFetchRequest.AcknowledgementBatch, units.get((topic_id, number))
                        ),
                    )
                    for number in numbers
                ],
            )
            for topic_id, numbers in by_topic(session.added | units.keys()).items()
        ],
        forgotten_topics_data=[
            ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(session.forgotten).items()
        ],
    )


def acknowledge_request(
    group_id: str, member_id: str, epoch: int, units: Mapping[IdPartition, AckUnit]
) -> ShareAcknowledgeRequest:
    """Return a request that only acknowledges."""
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(unit.has_renewals for unit in units.values()),
        topics=[
            ShareAcknowledgeRequest.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    ShareAcknowledgeRequest.AcknowledgePartition(
                        partition_index=number,
                        acknowledgement_batches=_batches(
                            ShareAcknowledgeRequest.AcknowledgementBatch, units[topic_id, number]
                        ),
                    )
                    for number in numbers
                ],
            )
            for topic_id, numbers in by_topic(units).items()
        ],
    )


def acquired_ranges(
    acquired: Iterable[ShareFetchResponse.AcquiredRecords],
) -> tuple[AcquiredRange, ...]:
    """Return acquired offsets. Neighbours with the same delivery count are one range."""
    found: list[AcquiredRange] = []
    for each in acquired:
        first, last, count = each.first_offset, each.last_offset, each.delivery_count
        if found and found[-1].last + 1 == first and found[-1].delivery_count == count:
            found[-1] = found[-1]._replace(last=last)
        else:
            found.append(AcquiredRange(first, last, count))
    return tuple(found)


def _batches(batch: Callable[..., B], unit: AckUnit | None) -> list[B]:
    ranges = () if unit is None else unit.ranges
    return [
        batch(first_offset=first, last_offset=last, acknowledge_types=[type])
        for first, last, type in ranges
    ]
