"""Responses that are too large, so that only their first bytes arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.errors import RecordTooLargeError
from kohort.fetcher.buffer._completed import OversizedBatch
from kohort.fetcher.buffer._oversized import find_batch
from kohort.protocol import encode
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.transport import OversizedFrameError
from kohort.types import TopicPartition
from tests.fetcher.fake import Consumer, FakeCluster, Partition, consuming
from tests.fetcher.making import T0, T1, T2, batch, owning

ID = b"t" * 16
LIMIT = 5000


def head_of(response: FetchResponse, version: int, size: int = 2000) -> bytes:
    """Return the first bytes of a frame with the response."""
    tags = b"\0" if version >= 12 else b""
    return (bytes(4) + tags + encode(response, version))[:size]


def response(*partitions: Partition) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse(
        topic="t", topic_id=ID, partitions=list(partitions)
    )
    return FetchResponse(responses=[topic])


def large(tp: TopicPartition, first: int) -> Partition:
    """Return a partition with a batch of three records over the limit."""
    data = batch(first, 3)
    size = (2 * LIMIT).to_bytes(4, "big")
    records = data[:8] + size + data[12:] + bytes(2 * LIMIT - len(data) + 12)
    return Partition(partition_index=tp.partition, high_watermark=9, records=records)


class TestFinding:
    @pytest.mark.parametrize("version", range(4, 19))
    def test_batch_is_found_in_every_version(self, version: int) -> None:
        aborted = [FetchResponse.AbortedTransaction(producer_id=5, first_offset=1)] * 3
        small = Partition(partition_index=0, records=batch(0, 2), aborted_transactions=aborted)
        empty = Partition(partition_index=2, records=None, aborted_transactions=None)
        head = head_of(response(small, empty, large(T1, 4)), version)
        assert find_batch(head, version, {ID: "t"}) == OversizedBatch(T1, 2 * LIMIT + 12, 7)

    def test_batch_size_stays_unknown_without_header(self) -> None:
        whole = head_of(response(large(T1, 4)), 12)
        start = whole.index(batch(4, 3)[:8])
        assert find_batch(whole[: start + 10], 12, {}) == OversizedBatch(T1)

    @pytest.mark.parametrize("size", [0, 3, 5, 12, 20, 30])
    def test_nothing_is_found_when_head_is_short(self, size: int) -> None:
        assert find_batch(head_of(response(large(T1, 4)), 12, size), 12, {}) is None

    @pytest.mark.parametrize("version", [4, 12, 18])
    def test_random_bytes_raise_nothing(self, version: int) -> None:
        for seed in range(256):
            find_batch(bytes((seed * number) & 0xFF for number in range(300)), version, {})

    def test_batch_of_old_format_ends_at_its_offset(self) -> None:
        head = bytearray(head_of(response(large(T1, 4)), 12))
        head[head.index(batch(4, 3)[:8]) + 16] = 1
        assert find_batch(bytes(head), 12, {}) == OversizedBatch(T1, 2 * LIMIT + 12, 5)


Oversized = Callable[[int, FetchRequest], Any]


def too_large(*where: TopicPartition, head: bytes | None = None) -> Oversized:
    """Return a script whose response is over the limit for one of these partitions."""

    def script(node: int, request: FetchRequest) -> Any:
        asked = {
            TopicPartition("t", each.partition)
            for topic in request.topics
            for each in topic.partitions
        }
        if not asked.intersection(where):
            return None
        found = head_of(response(large(where[0], 0)), 12) if head is None else head
        return OversizedFrameError("too large", 3 * LIMIT, LIMIT, found, 12)

    return script


async def gather(
    consumer: Consumer, count: int
) -> tuple[dict[TopicPartition, list[int]], RecordTooLargeError]:
    """Poll until there is an error and this many records arrived."""
    seen: dict[TopicPartition, list[int]] = {}
    errors: list[RecordTooLargeError] = []
    with anyio.fail_after(60):
        while not errors or sum(map(len, seen.values())) < count:
            try:
                found = await consumer.poll(timeout=0.1)
            except RecordTooLargeError as error:
                errors.append(error)
                continue
            for tp, offsets in found.items():
                seen.setdefault(tp, []).extend(offsets)
    return seen, errors[0]


@pytest.mark.anyio
class TestFetching:
    async def test_error_names_partition_size_and_option(self) -> None:
        cluster = FakeCluster()
        for tp in (T0, T1):
            cluster.add(tp)
        cluster.produce(T1, 2, batch(0, 2))
        cluster.scripts.extend([too_large(T0)] * 20)
        async with consuming(cluster, owning(T0, T1)) as consumer:
            seen, error = await gather(consumer, 2)
            assert seen == {T1: [0, 1]}
            assert (error.topic_partition, error.offset, error.next_offset) == (T0, 0, 3)
            assert f"t-0 at offset 0 failed: the batch of {2 * LIMIT + 12} bytes" in str(error)
            assert f"receive_message_max_bytes={LIMIT}" in str(error)
            assert len(cluster.fetches) < 10, "no spin"

    async def test_partitions_are_fetched_alone_without_header(self) -> None:
        cluster = FakeCluster()
        for tp in (T0, T1, T2):
            cluster.add(tp)
            cluster.produce(tp, 2, batch(0, 2))
        cluster.scripts.extend([too_large(T1, head=b"")] * 8)
        async with consuming(cluster, owning(T0, T1, T2)) as consumer:
            seen, error = await gather(consumer, 4)
            assert seen == {T0: [0, 1], T2: [0, 1]}
            assert (error.topic_partition, error.next_offset) == (T1, None)
            asked = [
                [each.partition for topic in request.topics for each in topic.partitions]
                for _, _, request in cluster.fetches
            ]
            assert asked[:4] == [[0, 1, 2], [0], [1], [2]]
            assert [request.max_bytes for _, _, request in cluster.fetches[1:4]] == [1, 1, 1]
            cluster.scripts.clear()
            cluster.produce(T0, 4, batch(2, 2))
            seen, _ = await gather(consumer, 2)
            assert seen == {T0: [2, 3]}
            assert len(asked) < 12, "no spin"

    async def test_partition_is_paused_when_skip_has_no_header(self) -> None:
        cluster = FakeCluster()
        for tp in (T0, T1):
            cluster.add(tp)
            cluster.produce(tp, 2, batch(0, 2))
        cluster.scripts.extend([too_large(T0, head=b"")] * 20)
        async with consuming(cluster, owning(T0, T1), on_error="skip") as consumer:
            assert await consumer.read(2) == {T1: [0, 1]}
            assert await consumer.poll(timeout=0.5) == {}
            assert consumer.subscription.paused() == {T0}
            assert consumer.subscription.position(T0) == 0
            cluster.scripts.clear()
            consumer.subscription.resume([T0])
            consumer.fetcher.wake()
            assert await consumer.read(2) == {T0: [0, 1]}

    async def test_skip_passes_one_batch_by_its_header(self) -> None:
        cluster = FakeCluster()
        cluster.add(T0)
        cluster.produce(T0, 3, batch(0, 3))
        cluster.produce(T0, 5, batch(3, 2))
        cluster.scripts.append(too_large(T0))
        async with consuming(cluster, owning(T0), on_error="skip") as consumer:
            assert await consumer.read(2) == {T0: [3, 4]}
            figures = consumer.fetcher.metrics()
            assert figures["batches-skipped-total"] == 1
            assert figures["bytes-skipped-total"] == 2 * LIMIT + 12
