"""The requests and responses of OffsetCommit and OffsetFetch in all their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kohort.coordinator_client._coordinator import RequestForm
from kohort.coordinator_client.machine._member import NO_GENERATION
from kohort.coordinator_client.offsets._commit_rules import OffsetsSender
from kohort.errors import ErrorCode
from kohort.protocol import ZERO_UUID
from kohort.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kohort.types import OffsetAndMetadata, TopicPartition

_NAMES_ONLY = 9
"""The last version with topic names. Later versions have topic ids instead (KIP-516)."""
_FIRST_EPOCHS = 9
"""The first version of both that a member of a consumer group may send (KIP-848)."""
_OLD_FETCH = 7
"""The last version of OffsetFetch for one group."""
_FIRST_STABLE = 7
"""The first version of OffsetFetch that can wait for open transactions (KIP-447)."""

FetchedOffset = OffsetAndMetadata | int | None
"""A committed offset, an error code, or None for no committed offset."""


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def commit_forms(
    group_id: str,
    sender: OffsetsSender,
    group_instance_id: str | None,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ids: Mapping[str, bytes] | None,
) -> Sequence[RequestForm[OffsetCommitResponse]]:
    """Return the OffsetCommit request. Without ``ids`` it uses versions with topic names."""
    topics = []
    for topic, numbers in _by_topic(offsets).items():
        partitions = []
        for number in numbers:
            at = offsets[TopicPartition(topic, number)]
            partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )
        topics.append(
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic, topic_id=_topic_id(ids, topic), partitions=partitions
            )
        )
    message = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=sender.generation,
        member_id=sender.member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    )
    lowest = _FIRST_EPOCHS if sender.has_epoch else None
    return [RequestForm(message, lowest, _NAMES_ONLY if ids is None else None)]


def commit_codes(
    response: OffsetCommitResponse,
    requested: Iterable[TopicPartition],
    ids: Mapping[str, bytes] | None,
) -> dict[TopicPartition, int]:
    """Return the error codes by partition. One that is missing counts as an unknown error."""
    names = _names_by_id(ids)
    found = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition_index): (
            partition.error_code
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    return {tp: found.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in requested}


def fetch_forms(
    group_id: str,
    reader: OffsetsSender,
    partitions: Iterable[TopicPartition] | None,
    ids: Mapping[str, bytes] | None,
    require_stable: bool,
) -> Sequence[RequestForm[OffsetFetchResponse]]:
    """Return the OffsetFetch request of one group. None requests all its partitions, by name.

    The last form is for brokers that cannot wait for open transactions, so it does not ask for it.
    A member of a consumer group uses only the first form, in which it names itself.
    """
    topics = _by_topic(partitions or ())
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=reader.member_id if reader.has_epoch else None,
        member_epoch=reader.generation if reader.has_epoch else NO_GENERATION,
        topics=[
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=topic, topic_id=_topic_id(ids, topic), partition_indexes=numbers
            )
            for topic, numbers in topics.items()
        ]
        if partitions is not None
        else None,
    )
    single = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
        for topic, numbers in topics.items()
    ]
    listed = None if partitions is None else single
    newest = RequestForm(
        OffsetFetchRequest(groups=[group], require_stable=require_stable),
        min_version=_FIRST_EPOCHS if reader.has_epoch else _OLD_FETCH + 1,
        max_version=_NAMES_ONLY if ids is None else None,
    )
    if reader.has_epoch:
        return [newest]
    return [
        newest,
        RequestForm(
            OffsetFetchRequest(group_id=group_id, topics=listed, require_stable=require_stable),
            min_version=_FIRST_STABLE,
            max_version=_OLD_FETCH,
        ),
        RequestForm(
            OffsetFetchRequest(group_id=group_id, topics=listed),
            max_version=_FIRST_STABLE - 1,
        ),
    ]


def fetched_offsets(
    response: OffsetFetchResponse,
    group_id: str,
    requested: Iterable[TopicPartition] | None,
    ids: Mapping[str, bytes] | None,
) -> tuple[int, dict[TopicPartition, FetchedOffset]]:
    """Return the error code of the whole response and the results by partition, or all if None.

    A partition that the response leaves out has no result. It may have a committed offset.
    """
    code, found = response.error_code, dict(_fetched_single(response))
    for group in response.groups:
        if group.group_id == group_id:
            code, found = group.error_code, dict(_fetched_group(group, _names_by_id(ids)))
    wanted = found if requested is None else requested
    return code, {tp: found[tp] for tp in wanted if tp in found}


def has_topic_ids(response: OffsetFetchResponse) -> bool:
    """True if the response names topics by id, so that it cannot be of a deleted topic."""
    return any(any(topic.topic_id) for group in response.groups for topic in group.topics)


def _fetched_single(
    response: OffsetFetchResponse,
) -> Iterator[tuple[TopicPartition, FetchedOffset]]:
    for topic in response.topics:
        for at in topic.partitions:
            yield TopicPartition(topic.name, at.partition_index), _value(at)


def _fetched_group(
    group: OffsetFetchResponse.OffsetFetchResponseGroup, names: Mapping[bytes, str]
) -> Iterator[tuple[TopicPartition, FetchedOffset]]:
    for topic in group.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for at in topic.partitions:
            yield TopicPartition(name, at.partition_index), _value(at)


def _value(
    at: OffsetFetchResponse.OffsetFetchResponsePartition
    | OffsetFetchResponse.OffsetFetchResponsePartitions,
) -> FetchedOffset:
    if at.error_code:
        return at.error_code
    if at.committed_offset < 0:
        return None
    return OffsetAndMetadata(at.committed_offset, at.metadata or "", at.committed_leader_epoch)


def _topic_id(ids: Mapping[str, bytes] | None, topic: str) -> bytes:
    return ZERO_UUID if ids is None else ids[topic]


def _names_by_id(ids: Mapping[str, bytes] | None) -> dict[bytes, str]:
    return {topic_id: topic for topic, topic_id in (ids or {}).items()}
