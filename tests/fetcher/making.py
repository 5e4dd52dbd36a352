"""Batches and completed fetches for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kohort.fetcher import FetchBuffer
from kohort.fetcher.buffer._completed import CompletedFetch, DecodeOptions
from kohort.records import (
    Compression,
    ControlType,
    NewRecord,
    RecordSet,
    encode_batch,
    end_marker,
)
from kohort.subscription import FetchTarget, SubscriptionState, Watermarks
from kohort.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def batch(first: int, count: int, **options: Any) -> bytes:
    """Return records at offsets first, first + 1, ... whose value is the offset in digits."""
    records = [NewRecord(1000 + i, b"k", b"%d" % i) for i in range(first, first + count)]
    options.setdefault("leader_epoch", 3)
    return encode_batch(records, base_offset=first, **options)


def compacted(first: int, offsets: Sequence[int], last: int) -> bytes:
    """Return the batch with offsets first to last as compaction leaves it."""
    records = [NewRecord(1000 + i, b"k", b"%d" % i) for i in offsets]
    return encode_batch(
        records,
        base_offset=first,
        offset_deltas=[offset - first for offset in offsets],
        last_offset_delta=last - first,
        leader_epoch=3,
        base_timestamp=1000,
    )


def marker(offset: int, kind: ControlType, producer_id: int, *, leader_epoch: int = 3) -> bytes:
    """Return the control batch that ends a transaction."""
    return encode_batch(
        [end_marker(kind, coordinator_epoch=0, timestamp=5)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def broken(data: bytes) -> bytes:
    """Return the batch with one bit of its last record changed, so that its CRC is wrong."""
    return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]


class CountedLease:
    """A lease that counts its releases."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def fetched(
    subscription: SubscriptionState,
    tp: TopicPartition,
    offset: int,
    *data: bytes,
    lease: CountedLease | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    epoch: int | None = None,
    **options: Any,
) -> CompletedFetch:
    """Return a completed fetch of a partition, by default in its current epoch."""
    if epoch is None:
        epoch = subscription.snapshot().partitions[tp].epoch
    chosen = DecodeOptions(**options)
    records = RecordSet(
        b"".join(data),
        offset,
        topic=tp.topic,
        partition=tp.partition,
        check_crcs=chosen.check_crcs,
        budget=chosen.budget,
        aborted=aborted,
    )
    return CompletedFetch(
        tp, epoch, records, deserialize=chosen.deserialize, lease=lease, watermarks=Watermarks(1000)
    )


def owning(*partitions: TopicPartition, offset: int = 0, **options: Any) -> SubscriptionState:
    """Return a manual assignment with positions."""
    subscription = SubscriptionState(**options)
    subscription.assign(partitions)
    for tp in partitions:
        subscription.seek(tp, offset)
    return subscription


def offsets(records: Iterable[Any]) -> list[int]:
    return [record.offset for record in records]


def with_room(buffer: FetchBuffer, subscription: SubscriptionState) -> list[FetchTarget]:
    """Return every target that has room and memory."""
    targets = subscription.fetch_targets()
    with subscription.lock:
        limits = buffer.queues.limits
        limits.update()
        chosen = [target for target in targets if limits.has_room(target)]
    allowed = limits.allowed
    return [each for each in chosen if allowed is None or each.topic_partition in allowed]


__all__ = [
    "T0",
    "T1",
    "T2",
    "Compression",
    "ControlType",
    "CountedLease",
    "batch",
    "broken",
    "compacted",
    "fetched",
    "marker",
    "offsets",
    "owning",
    "with_room",
]
