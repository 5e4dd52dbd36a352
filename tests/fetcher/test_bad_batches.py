"""Bad input, row by row, on both decoders: a typed error, no spin, and no other record lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort.errors import DataError, RecordDeserializationError, RecordTooLargeError
from kohort.protocol.messages import FetchResponse
from kohort.types import TopicPartition
from tests.fetcher.bad_batches import BEGIN, GOOD, ROWS, Row, replaced, table
from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import T0, T1, ControlType, batch, marker, owning
from tests.support.decoders import decoder

__all__ = ["decoder"]

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("decoder"),
    pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True),  # virtual time
]

WRONG = [
    pytest.param(row, data, id=f"{row.name}-{number}")
    for row in ROWS
    if row.raises is not None
    for number, data in enumerate(row.data)
]
each_row = pytest.mark.parametrize(("row", "data"), WRONG)


def spoilt(data: bytes) -> FakeCluster:
    """Return a cluster. T0 has good offsets 0, 1, 4, 5 around the bad data. T1 is valid."""
    cluster = FakeCluster()
    cluster.add(T0).append(2, batch(0, 2))
    cluster.logs[T0].append(4, data)
    cluster.logs[T0].append(6, batch(4, 2))
    cluster.add(T1)
    return cluster


async def gather(consumer: Consumer, seconds: float) -> tuple[dict[Any, list[int]], list[Any]]:
    """Return the offsets and the errors of this many seconds."""
    seen: dict[TopicPartition, list[int]] = {}
    errors: list[DataError] = []
    until = anyio.current_time() + seconds
    while anyio.current_time() < until:
        try:
            for tp, offsets in (await consumer.poll(timeout=0.5)).items():
                seen.setdefault(tp, []).extend(offsets)
        except DataError as error:
            errors.append(error)
    return seen, errors


def check_error(error: DataError, row: Row) -> None:
    assert row.raises is not None and type(error) is row.raises
    assert (error.topic_partition, error.offset) == (T0, 2)
    if row.raises is RecordTooLargeError:
        return
    assert error.raw
    if row.raises is RecordDeserializationError:
        assert (error.next_offset, error.raw) == (3, b"2")
    else:
        assert error.next_offset == (4 if row.end_known else None)
    assert "seek(" in str(error)


@each_row
async def test_raised_it_stands_and_costs_nobody_anything(row: Row, data: bytes) -> None:
    cluster = spoilt(data)
    options = {"fetch_max_wait_ms": 500, **row.options}
    async with consuming(cluster, owning(T0, T1), **options) as consumer:
        seen, errors = await gather(consumer, 5)
        assert seen == {T0: [0, 1]}
        assert 2 <= len(errors) <= 12
        for error in errors:
            check_error(error, row)
        assert consumer.subscription.position(T0) == 2
        assert len(cluster.fetches) <= 40, "no spin"
        cluster.produce(T1, 2, batch(0, 2))
        seen, _ = await gather(consumer, 1)
        assert seen == {T1: [0, 1]}
        behind = 3 if row.raises is RecordDeserializationError else 4
        consumer.seek(T0, behind)
        seen, errors = await gather(consumer, 1)
        assert (seen, errors) == ({T0: list(range(behind, 6))}, [])


@each_row
async def test_skipped_the_rest_comes(row: Row, data: bytes) -> None:
    cluster = spoilt(data)
    cluster.logs[T1].append(2, batch(0, 2))
    options = {"fetch_max_wait_ms": 500, "on_error": "skip", **row.options}
    async with consuming(cluster, owning(T0, T1), **options) as consumer:
        seen, errors = await gather(consumer, 5)
        figures = consumer.fetcher.metrics()
        skipped = figures["records-skipped-total"], figures["batches-skipped-total"]
        assert seen[T1] == [0, 1]
        if row.raises is RecordTooLargeError:
            assert seen[T0] == [0, 1]
            assert errors
            return
        assert errors == []
        if row.raises is RecordDeserializationError:
            assert (seen[T0], skipped) == ([0, 1, 3, 4, 5], (1, 0))
        else:
            assert (seen[T0], skipped) == ([0, 1, 4, 5], (0, 1 if row.end_known else 2))
        assert consumer.subscription.position(T0) == 6
        assert len(cluster.fetches) <= 40, "no spin"


@each_row
async def test_paused_it_waits_for_a_resume(row: Row, data: bytes) -> None:
    cluster = spoilt(data)
    options = {"fetch_max_wait_ms": 500, "on_error": "pause", **row.options}
    subscription = owning(T0, T1)
    async with consuming(cluster, subscription, **options) as consumer:
        assert await gather(consumer, 5) == ({T0: [0, 1]}, [])
        assert subscription.paused() == {T0}
        assert subscription.position(T0) == 2
        error = subscription.snapshot().partitions[T0].status.last_error
        assert isinstance(error, DataError)
        check_error(error, row)
        assert len(cluster.fetches) <= 40, "no spin"
        cluster.produce(T1, 2, batch(0, 2))
        assert await gather(consumer, 1) == ({T1: [0, 1]}, [])
        cluster.logs[T0].batches[1] = (4, GOOD)
        subscription.resume([T0])
        consumer.fetcher.wake()
        if row.raises is RecordDeserializationError:
            assert await gather(consumer, 1) == ({}, [])
            assert subscription.paused() == {T0}
        else:
            assert await gather(consumer, 1) == ({T0: [2, 3, 4, 5]}, [])


@pytest.mark.parametrize("size", [1, 11, 12, 30, 61, len(GOOD) - 1])
async def test_a_batch_that_was_cut_off_comes_with_the_next_answer(size: int) -> None:
    cluster = spoilt(GOOD)

    def cut(node: int, request: Any) -> FetchResponse:
        response, _ = cluster.answer(node, request)
        for data in response.responses[0].partitions:
            if data.partition_index == 0:
                data.records = batch(0, 2) + GOOD[:size]
        return response

    cluster.scripts.append(cut)
    async with consuming(cluster, owning(T0, T1)) as consumer:
        assert await gather(consumer, 1) == ({T0: [0, 1, 2, 3, 4, 5]}, [])


async def test_a_batch_larger_than_what_is_asked_for_comes_whole() -> None:
    cluster = spoilt(GOOD)
    options = {"max_partition_fetch_bytes": 10}
    async with consuming(cluster, owning(T0, T1), **options) as consumer:
        assert await gather(consumer, 1) == ({T0: [0, 1, 2, 3, 4, 5]}, [])


@pytest.mark.parametrize("kind", list(ControlType))
async def test_a_transaction_that_ends_twice_is_the_same_as_once(kind: ControlType) -> None:
    cluster = FakeCluster()
    log = cluster.add(T0)
    options = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    log.append(2, batch(0, 2, **options))
    log.append(3, marker(2, kind, 9))
    log.append(4, marker(3, kind, 9))
    log.append(6, batch(4, 2, **options))

    def aborted(node: int, request: Any) -> FetchResponse:
        response, _ = cluster.answer(node, request)
        twice = [FetchResponse.AbortedTransaction(producer_id=9, first_offset=0)] * 2
        for data in response.responses[0].partitions:
            data.aborted_transactions = twice if kind is ControlType.ABORT else []
        return response

    cluster.scripts.append(aborted)
    committed = {"isolation_level": "read_committed"}
    async with consuming(cluster, owning(T0), **committed) as consumer:
        expected = [4, 5] if kind is ControlType.ABORT else [0, 1, 4, 5]
        assert await gather(consumer, 1) == ({T0: expected}, [])


async def test_the_page_has_the_rows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "poison.md").read_text(encoding="utf-8")
    assert BEGIN in page
    assert page == replaced(page)
    assert table() in page
