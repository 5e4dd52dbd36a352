"""SqlTransactions and AsyncSqlTransactions: results and offsets in a loop without process()."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer
from kohort.errors import ConfigurationError, IllegalStateError, OffsetConflictError
from kohort.processing import AsyncSqlTransactions, SqlOffsets, SqlTransactions
from kohort.testing import Cluster
from tests.processing.databases import Database, Gaps, sqlite_at
from tests.processing.kit import TP, World, in_world

Record = ConsumerRecord[bytes, bytes]
ALL = [(0, n) for n in range(6)]
LIMIT_MS = 90_000


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return sqlite_at(tmp_path / "results.db")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", list("abcdef"))
        yield cluster


def consumer_of(cluster: Cluster, **options: Any) -> KafkaConsumer[bytes, bytes]:
    return KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        max_poll_records=2,
        **options,
    )


def insert(records: list[Record], cursor: Any) -> None:
    rows = [(each.partition, each.offset, (each.value or b"").decode()) for each in records]
    cursor.executemany("INSERT INTO results VALUES (?, ?, ?)", rows)


def store(consumer: KafkaConsumer[bytes, bytes], offsets: SqlTransactions, end: int) -> None:
    """Poll and store until this position."""
    while TP not in consumer.assignment() or consumer.position(TP) < end:
        for tp, records in consumer.poll(timeout_ms=LIMIT_MS).items():
            with offsets.transaction(tp, records) as cursor:
                insert(records, cursor)


def test_a_later_consumer_goes_on_after_the_stored_results(
    cluster: Cluster, database: Database
) -> None:
    for end in (4, 6):
        with consumer_of(cluster, enable_auto_commit=False) as consumer:
            offsets = SqlTransactions(consumer, SqlOffsets(database.connect))
            consumer.subscribe(["orders"], listener=offsets)
            store(consumer, offsets, end)
        offsets.close()
        assert database.next_offsets() == {0: end}
    assert database.results() == ALL


def test_records_of_a_failed_block_are_polled_again(cluster: Cluster, database: Database) -> None:
    with consumer_of(cluster) as consumer:
        offsets = SqlTransactions(consumer, SqlOffsets(database.connect))
        consumer.subscribe(["orders"], listener=offsets)
        store(consumer, offsets, 2)
        polled = consumer.poll(timeout_ms=LIMIT_MS)
        with pytest.raises(ZeroDivisionError), offsets.transaction(TP, polled[TP]) as cursor:
            insert(polled[TP], cursor)
            raise ZeroDivisionError
        assert database.results() == ALL[:2]
        assert consumer.position(TP) == 2
        store(consumer, offsets, 6)
    offsets.close()
    assert database.results() == ALL


def test_results_of_another_owner_are_passed(cluster: Cluster, database: Database) -> None:
    """The second consumer is what a suspended owner finds when it goes on."""
    with consumer_of(cluster) as consumer:
        offsets = SqlTransactions(consumer, SqlOffsets(database.connect))
        consumer.subscribe(["orders"], listener=offsets)
        polled = consumer.poll(timeout_ms=LIMIT_MS)
        with consumer_of(cluster) as other:
            theirs = SqlTransactions(other, SqlOffsets(database.connect))
            other.assign([TP])
            theirs.on_partitions_assigned([TP])
            store(other, theirs, 4)
        theirs.close()
        entered = False
        with pytest.raises(OffsetConflictError), offsets.transaction(TP, polled[TP]):
            entered = True
        assert not entered and consumer.position(TP) == 4
        store(consumer, offsets, 6)
    offsets.close()
    assert database.results() == ALL


def test_partitions_without_the_listener_are_an_error(cluster: Cluster, database: Database) -> None:
    with consumer_of(cluster) as consumer:
        offsets = SqlTransactions(consumer, SqlOffsets(database.connect))
        consumer.assign([TP])
        records = consumer.poll(timeout_ms=LIMIT_MS)[TP]
        with (
            pytest.raises(IllegalStateError, match=r"listener of subscribe"),
            offsets.transaction(TP, records),
        ):
            pass
    with pytest.raises(ConfigurationError, match=r"use SqlOffsets"):
        SqlTransactions(consumer_of(cluster), database.connect)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"needs a group"):
        SqlTransactions(KafkaConsumer(), SqlOffsets(database.connect))


# -- AsyncKafkaConsumer, on virtual time -----------------------------------------------------------


async def store_later(
    consumer: AsyncKafkaConsumer[bytes, bytes], offsets: AsyncSqlTransactions, end: int
) -> None:
    while TP not in consumer.assignment() or await consumer.position(TP) < end:
        for tp, records in (await consumer.poll(timeout_ms=LIMIT_MS)).items():
            async with offsets.transaction(tp, records) as cursor:
                for each in records:
                    row = each.partition, each.offset, each.value
                    await cursor.execute("INSERT INTO results VALUES (?, ?, ?)", row)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.cases(1)  # each has a life for each call
def test_a_kill_at_any_call_loses_and_repeats_nothing(backend: str, tmp_path: Path) -> None:
    calls: list[str] = []

    async def run(world: World, gaps: Gaps) -> None:
        consumer = world.consumer(subscribe=False, max_poll_records=2)
        async with consumer:
            offsets = AsyncSqlTransactions(consumer, gaps.store())
            consumer.subscribe(["orders"], listener=offsets)
            await store_later(consumer, offsets, 6)

    async def main(world: World) -> None:
        world.produce(*"abcdef")
        gaps = Gaps(database, at)
        try:
            await run(world, gaps)
        except Exception:
            assert gaps.is_dead
        calls[:] = gaps.calls
        await run(world, Gaps(database))
        assert database.results() == ALL

    at = 0
    while at == 0 or len(calls) > at - 1:
        database = sqlite_at(tmp_path / f"{at}.db")
        in_world(backend, main)
        at += 1
    assert {"SELECT", "CREATE", "INSERT", "UPDATE", "commit"} <= set(calls)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_block_is_rolled_back(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        world.produce(*"abcdef")
        consumer = world.consumer(subscribe=False, max_poll_records=6)
        async with consumer:
            offsets = AsyncSqlTransactions(consumer, Gaps(database).store())
            consumer.subscribe(["orders"], listener=offsets)
            polled = await consumer.poll(timeout_ms=LIMIT_MS)
            with anyio.move_on_after(10):
                async with offsets.transaction(TP, polled[TP]) as cursor:
                    row = 0, 0, "a"
                    await cursor.execute("INSERT INTO results VALUES (?, ?, ?)", row)
                    await anyio.sleep_forever()
            assert database.results() == []
            assert await consumer.position(TP) == 0
            await store_later(consumer, offsets, 6)
            await offsets.close()
        assert database.results() == ALL

    in_world(backend, main)
