"""process() with each kind of handler, for both consumers."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.processing import (
    AsyncPartitionRecords,
    Batch,
    PartitionRecords,
    Retry,
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


def run(consumer: KafkaConsumer[str, int]) -> None:
    process(consumer, charge_in_thread, order="key", retry=Retry(5), failed=keep)
    process(consumer, insert_in_thread, batch=Batch(100, split=True), concurrency=2)
    process(consumer, each_partition=totals_in_thread, stuck_after=60, commit_interval=0.5)
