"""Fetch requests, and the result of a response for each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kohort.config import FetchConfig
from kohort.errors import CorruptBatchError, RecordTooLargeError
from kohort.fetcher._errors import EpochEnd, Failure, FailureAction, fetch_failure, truncation
from kohort.fetcher.buffer._completed import CompletedFetch, DecodeOptions
from kohort.fetcher.buffer._memory import SharedLease
from kohort.protocol import ZERO_UUID, messages
from kohort.records import RecordSet
from kohort.subscription import Watermarks
from kohort.types import NamedTuple, TopicPartition

LAST_BY_NAME = 12
"""Last version with topic names. Later versions have topic ids (KIP-516)."""


class PartitionRequest(NamedTuple):
    """The part of a Fetch request for one partition."""

    topic_partition: TopicPartition
    epoch: int
    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: bytes = ZERO_UUID
    """The topic's id, or zeros if it is unknown."""


class FetchRequestPlan(NamedTuple):
    """The contents of one request: all partitions, or the changes of its session."""

    requests: Sequence[PartitionRequest]
    forgotten: Sequence[PartitionRequest]
    session_id: int
    session_epoch: int
    by_id: bool
    """True if all topics have ids."""

    @property
    def max_version(self) -> int:
        """The newest version that can express the request."""
        return messages.FetchRequest.versions.last if self.by_id else LAST_BY_NAME


class Redirect(NamedTuple):
    """The follower that the leader names for reading (KIP-392)."""

    node: int


class BatchTooLarge(NamedTuple):
    """The bytes to request for a batch that the response contained only in part."""

    max_bytes: int


FetchResult: TypeAlias = CompletedFetch | Failure | BatchTooLarge | Redirect


def fetch_request(
    config: FetchConfig, plan: FetchRequestPlan, max_wait_ms: int, max_bytes: int, *, rack: str = ""
) -> messages.FetchRequest:
    """Return the request, with partitions in their order where grouping by topic allows it.

    Each offset is requested with the id of its topic, because a recreated topic has two ids.
    """
    topics: dict[tuple[str, bytes], messages.FetchRequest.FetchTopic] = {}
    for request in plan.requests:
        name, partition = request.topic_partition
        if (topic := topics.get((name, request.topic_id))) is None:
            topic = messages.FetchRequest.FetchTopic(
                topic=name, topic_id=request.topic_id, partitions=[]
            )
            topics[name, request.topic_id] = topic
        topic.partitions.append(
            messages.FetchRequest.FetchPartition(
                partition=partition,
                current_leader_epoch=request.leader_epoch,
                fetch_offset=request.offset,
                partition_max_bytes=request.max_bytes,
            )
        )
    return messages.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=1 if config.isolation_level == "read_committed" else 0,
        session_id=plan.session_id,
        session_epoch=plan.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=_forgotten(plan.forgotten) if plan.forgotten else [],
        rack_id=rack,
    )


def _forgotten(requests: Iterable[PartitionRequest]) -> list[messages.FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, bytes], messages.FetchRequest.ForgottenTopic] = {}
    for request in requests:
        name, partition = request.topic_partition
        topic = topics.setdefault(
            (name, request.topic_id),
            messages.FetchRequest.ForgottenTopic(
                topic=name, topic_id=request.topic_id, partitions=[]
            ),
        )
        topic.partitions.append(partition)
    return list(topics.values())


def partitions_of(
    response: messages.FetchResponse,
    requests: Mapping[TopicPartition, PartitionRequest],
    names: Mapping[bytes, str] | None = None,
) -> dict[TopicPartition, messages.FetchResponse.PartitionData]:
    """Return the requested partitions of the response; ``names`` of topics by their ids."""
    if names is None:
        names = {request.topic_id: request.topic_partition.topic for request in requests.values()}
    found: dict[TopicPartition, messages.FetchResponse.PartitionData] = {}
    for topic in response.responses:
        name = topic.topic or names.get(bytes(topic.topic_id), "")
        for data in topic.partitions:
            # The class itself would be a call of Python.
            tp: TopicPartition = tuple.__new__(TopicPartition, (name, data.partition_index))
            if tp in requests:
                found[tp] = data
    return found


def read_results(
    partitions: Mapping[TopicPartition, messages.FetchResponse.PartitionData],
    requests: Mapping[TopicPartition, PartitionRequest],
    *,
    options: DecodeOptions,
    lease: SharedLease | None,
    largest: int,
) -> dict[TopicPartition, FetchResult]:
    """Return the results for the partitions of a response that are still requested.

    Without a lease each result copies its batches, so that it does not keep the whole response.
    """
    results: dict[TopicPartition, FetchResult] = {}
    for tp, data in partitions.items():
        if tp not in requests:
            continue
        diverging = data.diverging_epoch
        if not data.error_code and diverging.epoch >= 0 and diverging.end_offset >= 0:
            end = EpochEnd(diverging.epoch, diverging.end_offset)
            results[tp] = Failure(
                truncation(tp, requests[tp].offset, end), FailureAction.RAISE_UNTIL_SEEK
            )
        elif not data.error_code and data.preferred_read_replica >= 0 and not data.records:
            results[tp] = Redirect(data.preferred_read_replica)
        else:
            results[tp] = _read(data, requests[tp], options, lease, largest)
    return results


def _read(
    data: messages.FetchResponse.PartitionData,
    request: PartitionRequest,
    options: DecodeOptions,
    lease: SharedLease | None,
    largest: int,
) -> FetchResult:
    tp = request.topic_partition
    if data.error_code:
        return fetch_failure(data.error_code, tp, request.offset)
    batches = data.records or b""
    records = RecordSet(
        batches if lease is not None else bytes(batches),
        request.offset,
        topic=tp.topic,
        partition=tp.partition,
        check_crcs=options.check_crcs,
        budget=options.budget,
        scratch=options.scratch,
        aborted=[(a.producer_id, a.first_offset) for a in data.aborted_transactions]
        if data.aborted_transactions
        else (),
    )
    scan = records.scan
    if scan.tail_size and not scan.batches:
        return _too_small(request, scan.tail_needs, largest)
    if scan.batches and records.next_offset <= request.offset:
        return Failure(
            CorruptBatchError(
                f"fetching {tp.topic}-{tp.partition} at offset {request.offset} failed: the "
                f"response has only records up to {scan.last_offset}. The fetch is retried. "
                "If the error persists, check the broker",
                topic_partition=tp,
                offset=request.offset,
            ),
            FailureAction.RAISE,
        )
    return CompletedFetch(
        tp,
        request.epoch,
        records,
        deserialize=options.deserialize,
        lease=lease.share() if lease is not None and scan.batches else None,
        watermarks=tuple.__new__(  # the class itself would be a call of Python
            Watermarks, (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        ),
    )


def _too_small(request: PartitionRequest, needs: int | None, largest: int) -> FetchResult:
    # Brokers return the first batch whole since 0.10.1, whatever its size (KIP-74).
    tp = request.topic_partition
    if request.max_bytes >= largest:
        size = f" of {needs} bytes" if needs else ""
        return Failure(
            RecordTooLargeError(
                f"fetching {tp.topic}-{tp.partition} at offset {request.offset} failed: the batch"
                f"{size} does not fit into a response of {largest} bytes. Raise fetch_max_bytes "
                "and max_partition_fetch_bytes, or seek() past the batch",
                topic_partition=tp,
                offset=request.offset,
            ),
            FailureAction.RAISE_UNTIL_SEEK,
        )
    return BatchTooLarge(min(largest, max(2 * request.max_bytes, needs or 0)))
