"""Members without polls do not delay others, on kohort's cluster as on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer
from tests.interop.brokers import Broker

PARTITIONS = 6
PATIENCE = 90.0
SOON = 90.0
"""Seconds far below the session and max_poll_interval_ms, after which a hung group continues."""
Unique = Callable[[str], str]

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


@pytest.fixture
def options(broker: Broker, unique: Unique) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": unique("unpolled"),
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 300_000,
        "max_poll_interval_ms": 600_000,
    }


async def all_share(members: list[AsyncKafkaConsumer]) -> None:
    for _ in range(round(SOON / 0.05)):
        if [len(member.assignment()) for member in members] == [2, 2, 2]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError([member.assignment() for member in members])


async def test_members_started_in_a_row_share_without_polls(
    broker: Broker, unique: Unique, options: dict[str, Any]
) -> None:
    topic = broker.create_topic(unique("row"), PARTITIONS)
    members = [AsyncKafkaConsumer(topic, **options) for _ in range(3)]
    try:
        async with asyncio.timeout(PATIENCE):
            for member in members:
                async with asyncio.timeout(SOON):
                    await member.start()
            await all_share(members)
    finally:
        for member in members:
            await member.close()


async def test_members_started_at_once_share_without_polls(
    broker: Broker, unique: Unique, options: dict[str, Any]
) -> None:
    topic = broker.create_topic(unique("gather"), PARTITIONS)
    members = [AsyncKafkaConsumer(topic, **options) for _ in range(3)]
    try:
        async with asyncio.timeout(SOON):
            await asyncio.gather(*(member.start() for member in members))
            await all_share(members)
    finally:
        await asyncio.gather(*(member.close() for member in members))
