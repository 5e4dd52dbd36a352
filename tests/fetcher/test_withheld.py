"""A broker that returns no records although the log has more, as with a damaged log."""

from __future__ import annotations

import anyio
import pytest

from tests.fetcher.fake import Consumer, FakeCluster, consuming
from tests.fetcher.making import T0, T1, batch, owning

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True),  # virtual time
]


async def gather(consumer: Consumer, seconds: float) -> list[int]:
    """Return the offsets of T0 that arrive in this many seconds."""
    seen: list[int] = []
    until = anyio.current_time() + seconds
    while anyio.current_time() < until:
        seen += (await consumer.poll(timeout=0.1)).get(T0, [])
    return seen


async def test_it_is_noted_until_something_comes() -> None:
    cluster = FakeCluster()
    log = cluster.add(T0)
    log.append(2, batch(0, 2))
    log.end = 6
    async with consuming(cluster, owning(T0)) as consumer:
        assert await gather(consumer, 3) == [0, 1]
        state = consumer.subscription.snapshot().partitions[T0]
        status = state.status
        assert status.withheld is not None and status.fetched_at is not None
        offset, since = status.withheld
        assert offset == state.next_fetch.offset == 2
        assert status.fetched_at - since > 2
        log.batches.append((6, batch(2, 4)))
        assert await gather(consumer, 1) == [2, 3, 4, 5]
        assert consumer.subscription.snapshot().partitions[T0].status.withheld is None


async def test_what_an_answer_has_no_room_for_is_not_withheld() -> None:
    cluster = FakeCluster()
    cluster.add(T0).append(2, batch(0, 2))
    cluster.add(T1)
    for first in range(200):
        cluster.logs[T1].append(first + 1, batch(first, 1))
    options = {"fetch_max_bytes": len(batch(0, 2)), "max_partition_fetch_bytes": 1}  # one batch
    async with consuming(cluster, owning(T0, T1), **options) as consumer:
        for _ in range(20):
            await consumer.poll(timeout=0.1)
            state = consumer.subscription.snapshot().partitions[T0]
            assert state.status.withheld is None


@pytest.mark.parametrize("stable", [0, 2, 6])
async def test_the_end_of_an_open_transaction_is_waited_for(stable: int) -> None:
    cluster = FakeCluster()
    log = cluster.add(T0)
    log.append(2, batch(0, 2))
    log.end, log.stable = 6, stable
    async with consuming(cluster, owning(T0), isolation_level="read_committed") as consumer:
        assert await gather(consumer, 2) == [0, 1]
        withheld = consumer.subscription.snapshot().partitions[T0].status.withheld
        assert (withheld is not None) == (stable == 6)
