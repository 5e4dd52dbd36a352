"""Positions that are validated when the leader has changed, with a scripted cluster."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.errors import LogTruncationError, UnsupportedVersionError
from kohort.protocol.messages import FetchResponse, OffsetForLeaderEpochResponse
from kohort.subscription import Watermarks
from kohort.transport import Leader
from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import T0, T1, batch, owning

pytestmark = pytest.mark.anyio

virtual_time = pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
"""Mark of tests that depend on durations."""


def cluster_of(*batches: bytes, behind: int = 4, epoch: int = 3) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add(T0, epoch=epoch).append(behind, *batches)
    return cluster


def lead(cluster: FakeCluster, node: int, epoch: int) -> None:
    cluster.leaders[T0] = Leader(node, epoch)


async def go_on(cluster: FakeCluster, consumer: Consumer, behind: int = 6) -> None:
    """Produce more records and check that they arrive."""
    start = cluster.logs[T0].end
    cluster.produce(T0, behind, batch(start, behind - start))
    consumer.fetcher.wake()
    assert await consumer.poll() == {T0: list(range(start, behind))}


async def truncation(consumer: Consumer) -> LogTruncationError:
    with pytest.raises(LogTruncationError) as caught:
        await consumer.poll(timeout=2)
    return caught.value


async def test_validation_sends_epochs_of_the_last_batch_and_leader() -> None:
    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        assert not cluster.validations
        lead(cluster, 2, 7)
        await go_on(cluster, consumer)
        [(node, request)] = cluster.validations
        assert node == 2
        assert request.replica_id == -1
        [partition] = request.topics[0].partitions
        assert (partition.current_leader_epoch, partition.leader_epoch) == (7, 3)


@virtual_time
async def test_what_was_read_before_the_cut_is_handed_out_first() -> None:
    cluster = cluster_of(batch(0, 2), batch(2, 2))
    async with consuming(cluster, owning(T0)) as consumer:
        assert await consumer.poll(limit=1) == {T0: [0]}
        lead(cluster, 2, 7)
        cluster.logs[T0].epoch_ends[3] = 3, 1
        consumer.fetcher.wake()
        await anyio.sleep(0.05)
        assert cluster.validations
        assert await consumer.read(3) == {T0: [1, 2, 3]}
        error = await truncation(consumer)
        assert (error.offset, error.diverging_offset, error.diverging_epoch) == (4, 1, 3)
        assert consumer.fetcher.buffer.queues.permanent_errors() == {T0: error}
        count = len(cluster.validations)
        for _ in range(3):
            assert str(await truncation(consumer)) == str(error)
        assert len(cluster.validations) == count, "a known position is not validated again"


async def test_an_epoch_that_was_read_and_is_not_in_the_log_is_a_cut() -> None:
    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        lead(cluster, 2, 7)
        cluster.logs[T0].epoch_ends[3] = 2, 10
        consumer.fetcher.wake()
        error = await truncation(consumer)
        assert (error.offset, error.diverging_offset, error.diverging_epoch) == (4, 4, 2)


async def test_an_epoch_that_wrote_nothing_is_forgotten_without_a_cut() -> None:
    cluster = cluster_of(batch(0, 4))
    subscription = owning(T0)
    subscription.seek(T0, 4, leader_epoch=3)
    lead(cluster, 2, 7)
    cluster.logs[T0].epoch_ends[3] = 2, 4
    async with consuming(cluster, subscription) as consumer:
        await go_on(cluster, consumer)
    assert len(cluster.validations) == 1


@pytest.mark.parametrize(
    ("end", "log_start"),
    [
        pytest.param((-1, -1), 0, id="undefined"),
        pytest.param((-1, 2), 0, id="undefined epoch"),
        pytest.param((3, -1), 0, id="undefined offset"),
        pytest.param((3, 1), 2, id="end before the log start"),
        pytest.param((2, 2), 2, id="earlier epoch without records"),
        pytest.param((0, 0), 0, id="broker without epochs"),
        pytest.param((0, 9), 0, id="broker with epoch 0 only"),
    ],
)
async def test_reading_continues_when_leader_does_not_know_epoch(
    end: tuple[int, int], log_start: int
) -> None:
    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        with consumer.subscription.lock:
            state = consumer.subscription.partition(T0)
            assert state is not None
            state.status.watermarks = Watermarks(4, 4, log_start)
        lead(cluster, 2, 7)
        cluster.logs[T0].epoch_ends[3] = end
        await go_on(cluster, consumer)
        assert cluster.validations


async def test_a_broker_too_old_to_ask_is_read_from_on() -> None:
    def too_old(node: int, request: Any) -> Exception:
        return UnsupportedVersionError("OffsetForLeaderEpoch needs a version of 3-4")

    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        await consumer.poll(timeout=0.3)
        lead(cluster, 2, 7)
        cluster.scripts.append(too_old)
        await go_on(cluster, consumer)
        await consumer.poll(timeout=0.5)
    assert len(cluster.validations) == 1


@virtual_time
@pytest.mark.parametrize("wrong", ["nothing", "an error", "a bug"])
async def test_validation_is_retried_without_fetches_until_a_response(wrong: str) -> None:
    def answer(node: int, request: Any) -> Any:
        if wrong == "a bug":
            return ZeroDivisionError()
        if wrong == "nothing":
            return OffsetForLeaderEpochResponse(topics=[])
        return cluster.logs[T0].codes.append(6)

    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        await consumer.poll(timeout=0.9)
        lead(cluster, 2, 7)
        fetches = len(cluster.fetches)
        cluster.scripts.extend([answer] * 5)
        started = anyio.current_time()
        consumer.fetcher.wake()
        while cluster.scripts:
            assert [node for node, _, _ in cluster.fetches[fetches:]] == []
            try:
                assert await consumer.poll(timeout=0.005) == {}
            except Exception:
                assert wrong == "a bug"
        assert 0.05 < anyio.current_time() - started < 1
        await go_on(cluster, consumer)
        assert len(cluster.validations) == 6


async def test_what_was_sought_meanwhile_is_not_concerned() -> None:
    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0)) as consumer:
        await consumer.read(4)
        await consumer.poll(timeout=0.3)
        lead(cluster, 2, 7)
        cluster.logs[T0].epoch_ends[3] = 3, 1

        def sought(node: int, request: Any) -> None:
            consumer.seek(T0, 1)

        cluster.scripts.append(sought)
        consumer.fetcher.wake()
        assert await consumer.read(3) == {T0: [1, 2, 3]}


async def test_one_partition_that_was_cut_off_does_not_hold_up_another() -> None:
    cluster = cluster_of(batch(0, 4))
    cluster.add(T1)
    async with consuming(cluster, owning(T0, T1)) as consumer:
        await consumer.read(4)
        lead(cluster, 2, 7)
        cluster.logs[T0].epoch_ends[3] = 3, 1
        consumer.fetcher.wake()
        await truncation(consumer)
        cluster.produce(T1, 2, batch(0, 2))
        assert await consumer.poll() == {T1: [0, 1]}


async def test_diverging_epoch_in_a_fetch_response_is_raised() -> None:
    def diverging(node: int, request: Any) -> FetchResponse:
        data = FetchResponse.PartitionData(
            partition_index=0,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=2, end_offset=1),
            records=b"",
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[data])
        return FetchResponse(responses=[topic])

    cluster = cluster_of(batch(0, 4))
    cluster.scripts.append(diverging)
    async with consuming(cluster, owning(T0, offset=3)) as consumer:
        error = await truncation(consumer)
        assert (error.offset, error.diverging_offset, error.diverging_epoch) == (3, 1, 2)
        consumer.seek(T0, 1)
        assert await consumer.read(3) == {T0: [1, 2, 3]}


@virtual_time
async def test_what_the_old_leader_still_gave_is_validated_too() -> None:
    """Its response arrives when the position was found valid, and the new leader may lack it."""
    cluster = cluster_of(batch(0, 4))
    async with consuming(cluster, owning(T0), fetch_max_wait_ms=1000) as consumer:
        await consumer.read(4)
        await consumer.poll(timeout=0.1)  # a long poll waits at broker 1
        consumer.subscription.pause([T0])
        lead(cluster, 2, 7)
        consumer.fetcher._positions.validation.mark_validated(
            T0, consumer.subscription.snapshot().partitions[T0].epoch, 7
        )
        late = cluster.logs[T0]
        late.append(6, batch(4, 2))
        leaders, cluster.leaders = cluster.leaders, {T0: Leader(1, 3)}
        cluster.produce(T0, 6)
        await anyio.sleep(0.01)
        cluster.leaders = leaders
        late.epoch_ends[3] = 3, 5
        consumer.subscription.resume([T0])
        consumer.fetcher.wake()
        assert await consumer.read(2) == {T0: [4, 5]}
        error = await truncation(consumer)
        assert (error.offset, error.diverging_offset) == (6, 5)
