"""process() with each kind of handler, for both consumers."""

from __future__ import annotations

import sqlite3
from typing import Any

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.processing import (
    AsyncPartitionRecords,
    AsyncSqlTransactions,
    Batch,
    DeltaOffsets,
    IcebergOffsets,
    PartitionRecords,
    Retry,
    SqlOffsets,
    SqlTransactions,
    context,
    process,
)


async def charge(record: ConsumerRecord[str, int]) -> None:
    assert record.value is not None and not context.cancelled


def charge_in_thread(record: ConsumerRecord[str, int]) -> None:
    print(record.value or 0 + context.attempt)


async def insert(records: list[ConsumerRecord[str, int]]) -> None:
    print(len(records))


def insert_in_thread(records: list[ConsumerRecord[str, int]]) -> None:
    print(len(records))


async def totals(tp: TopicPartition, records: AsyncPartitionRecords[str, int]) -> None:
    async for record in records:
        print(tp.partition, record.value or 0)
        records.done(record)


def totals_in_thread(tp: TopicPartition, records: PartitionRecords[str, int]) -> None:
    for record in records:
        print(tp.partition, record.value or 0)
        records.done(record)


def connect() -> sqlite3.Connection:
    return sqlite3.connect("results.db", check_same_thread=False)


def store(record: ConsumerRecord[str, int], cursor: sqlite3.Cursor) -> None:
    cursor.execute("INSERT INTO results VALUES (?)", (record.value,))


def store_all(records: list[ConsumerRecord[str, int]], cursor: sqlite3.Cursor) -> None:
    cursor.executemany("INSERT INTO results VALUES (?)", [(each.value,) for each in records])


async def store_async(records: list[ConsumerRecord[str, int]], cursor: Any) -> None:
    await cursor.executemany("INSERT INTO results VALUES (%s)", [(each.value,) for each in records])


def rows(records: list[ConsumerRecord[str, int]]) -> list[int | None]:
    return [record.value for record in records]


def keep(record: ConsumerRecord[str, int], error: Exception, attempts: int) -> None:
    print(record.value, error, attempts)


class Letters:
    async def handle(
        self, record: ConsumerRecord[str, int], error: Exception, attempts: int, /
    ) -> None: ...


async def run_async(consumer: AsyncKafkaConsumer[str, int]) -> None:
    retry = [Retry(None, on=(ConnectionError, TimeoutError)), Retry(5, first=0.5)]
    await process(consumer, charge, order="key", concurrency=50, retry=retry, failed=Letters())
    await process(consumer, charge, order="none", window=500, delay=60, failed="skip")
    await process(consumer, insert, batch=Batch(5000, seconds=2), failed=keep)
    await process(consumer, each_partition=totals, drain=5, handle_signals=False)
    offsets = SqlOffsets(connect, table="etl.offsets")
    await process(consumer, store, offsets=offsets, retry=retry, concurrency=4)
    await process(consumer, store_async, batch=Batch(100), offsets=offsets, failed=keep)


def run(consumer: KafkaConsumer[str, int]) -> None:
    process(consumer, charge_in_thread, order="key", retry=Retry(5), failed=keep)
    process(consumer, insert_in_thread, batch=Batch(100, split=True), concurrency=2)
    process(consumer, each_partition=totals_in_thread, stuck_after=60, commit_interval=0.5)
    process(consumer, store, offsets=SqlOffsets(connect), delay=60)
    process(consumer, rows, batch=Batch(5000, 30), offsets=DeltaOffsets("lake/orders"))
    process(consumer, rows, batch=Batch(5000, 30), offsets=IcebergOffsets(print))
    process(consumer, store_all, batch=Batch(100), offsets=SqlOffsets(connect), failed="skip")


def loop(consumer: KafkaConsumer[str, int]) -> None:
    offsets = SqlTransactions(consumer, SqlOffsets(connect))
    consumer.subscribe(["orders"], listener=offsets)
    for tp, records in consumer.poll(timeout_ms=1000).items():
        with offsets.transaction(tp, records) as cursor:
            store_all(records, cursor)


async def loop_async(consumer: AsyncKafkaConsumer[str, int]) -> None:
    offsets = AsyncSqlTransactions(consumer, SqlOffsets(connect))
    consumer.subscribe(["orders"], listener=offsets)
    for tp, records in (await consumer.poll(timeout_ms=1000)).items():
        async with offsets.transaction(tp, records) as cursor:
            await store_async(records, cursor)
    await offsets.close()
