"""The order of the caller and the next fetch after a response with records."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from kohort.fetcher.requests._sending import SMALL_RESPONSE_BYTES
from tests.fetcher.fake import Consumer, FakeCluster
from tests.fetcher.making import T0, batch, owning

pytestmark = pytest.mark.anyio


class Observed:
    """The number of fetches that were sent at each notification of the caller."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.fetches_sent: list[int] = []
        self._cluster = cluster

    def notify_waiting_caller(self) -> bool:
        self.fetches_sent.append(len(self._cluster.fetches))
        return False


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def read_one_answer(cluster: FakeCluster, pace_ms: int = 0) -> Observed:
    observed = Observed(cluster)
    options: dict[str, Any] = {
        "notify_waiting_caller": observed.notify_waiting_caller,
        "fetch_pace_ms": pace_ms,
    }
    consumer = Consumer(cluster, owning(T0), **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(consumer.fetcher.run)
        assert await consumer.poll()
        await settled()
        tasks.cancel_scope.cancel()
    return observed


async def test_the_caller_goes_first_when_an_answer_is_small() -> None:
    cluster = FakeCluster()
    cluster.add(T0).append(1, batch(0, 1))
    observed = await read_one_answer(cluster)
    assert observed.fetches_sent == [1]


async def test_the_next_fetch_goes_first_when_an_answer_is_large() -> None:
    cluster = FakeCluster()
    cluster.add(T0).append(SMALL_RESPONSE_BYTES // 8, batch(0, SMALL_RESPONSE_BYTES // 8))
    observed = await read_one_answer(cluster)
    assert observed.fetches_sent == []


async def test_caller_is_notified_last_when_next_fetch_is_paced() -> None:
    cluster = FakeCluster()
    cluster.add(T0).append(1, batch(0, 1))
    observed = await read_one_answer(cluster, pace_ms=10_000)
    assert observed.fetches_sent == []
    assert len(cluster.fetches) == 1
