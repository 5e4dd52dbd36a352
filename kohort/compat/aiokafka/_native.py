"""Calls of kohort's consumer, each under its name of today."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from kohort import AsyncKafkaConsumer, TopicPartition

Native = AsyncKafkaConsumer[Any, Any]


async def poll(
    native: Any, timeout_ms: float, max_records: int | None, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[Any]]:
    found: dict[TopicPartition, list[Any]]
    if hasattr(native, "poll"):
        found = await native.poll(timeout_ms, max_records, partitions=list(partitions) or None)
    else:
        found = await native.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
    return found


async def close(native: Any) -> None:
    await (native.close() if hasattr(native, "close") else native.stop())


async def unsubscribe(native: Any) -> None:
    result = native.unsubscribe()
    if inspect.isawaitable(result):
        await result
    else:
        import asyncio

        while native.assignment() or native._is_unsubscribing:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def known_partitions(native: Any, topic: str) -> set[int] | None:
    named = getattr(native, "known_partitions", None) or native.partitions_for_topic
    found: set[int] | None = named(topic)
    return found


async def seek_to(native: Any, which: str, partitions: Iterable[TopicPartition]) -> None:
    result = getattr(native, which)(*partitions)
    if inspect.isawaitable(result):
        await result
