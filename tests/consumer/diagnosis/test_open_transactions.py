"""The producer whose open transaction holds committed reads back, on a virtual clock."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.async_producer import AsyncProducer
from tests.support.virtual import run_virtual

LOG = "kohort.consumer"
T0 = TopicPartition("t", 0)
COMMITTED: dict[str, Any] = {"isolation_level": "read_committed"}


def look_ups(cluster: MemoryCluster) -> int:
    return sum(each.api == "DescribeProducers" for each in cluster.requests)


def test_producer_of_the_open_transaction_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    found: list[str] = []

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", [b"before"])
            options = COMMITTED | {"wall_clock": cluster.wall_clock}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                assert await values(consumer, 1) == [b"before"]
                first, later = AsyncProducer(consumer, "first"), AsyncProducer(consumer, "later")
                await first.init()
                await later.init()
                at_ms = round(cluster.wall_clock() * 1000)
                await first.write(b"a", b"b", at_ms=at_ms)
                await later.write(b"c", at_ms=at_ms)
                cluster.produce("t", [b"after"])
                await consumer.poll(timeout_ms=35_000)
                (reason,) = consumer.explain().reasons
                assert reason.startswith(
                    f"t-0: 4 offsets wait for producer {first.id} (epoch {first.epoch}), whose "
                    "transaction is open since offset 1; its latest record is of 2026-01-01 00:00:"
                )
                assert reason.endswith(" UTC (35 s ago)")
                part = consumer.explain().as_dict()["partitions"]["t-0"]
                assert part["hidden_offsets"] == 4
                assert part["open_transaction"] == {
                    "text": reason,
                    "producer_id": first.id,
                    "epoch": first.epoch,
                    "first_offset": 1,
                    "last_timestamp": at_ms,
                }
                begun = look_ups(cluster)
                await consumer.poll(timeout_ms=90_000)
                assert 2 <= look_ups(cluster) - begun <= 4  # every 30 s
                await first.commit()
                assert await values(consumer, 2) == [b"a", b"b"]
                [reason] = consumer.explain().reasons
                assert "end of an open transaction" in reason  # of the other producer
                await poll_for(consumer, lambda: str(later.id) in consumer.explain().reasons[0])
                await later.commit()
                assert await values(consumer, 2) == [b"c", b"after"]
                begun = look_ups(cluster)
                await consumer.poll(timeout_ms=120_000)
                assert consumer.explain().reasons == (
                    "read to the end: no new records were produced",
                )
                assert look_ups(cluster) == begun
                found.extend(f"producer {each.id} " for each in (first, later))

    run_virtual(main)
    lines = [each for each in caplog.messages if "whose transaction" in each]
    assert len(lines) == 2
    assert all(name in line for name, line in zip(found, lines, strict=True))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_healthy_reader_looks_no_producers_up(isolation_level: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            options: dict[str, Any] = {"isolation_level": isolation_level}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                producer = AsyncProducer(consumer, "busy")
                for number in range(30):
                    await producer.init()
                    await producer.write(b"%d" % number, at_ms=0)
                    await consumer.poll(timeout_ms=2_000)
                    await producer.commit()
                await consumer.poll(timeout_ms=60_000)
                if isolation_level == "read_uncommitted":
                    await producer.init()
                    await producer.write(b"open", at_ms=0)
                    await consumer.poll(timeout_ms=1_000)
                await consumer.poll(timeout_ms=600_000)
                assert not look_ups(cluster)

    run_virtual(main)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_refused_look_up_leaves_the_general_reason(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOG)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", **COMMITTED) as consumer:
                producer = AsyncProducer(consumer, "open")
                await producer.init()
                await producer.write(b"x", at_ms=0)
                cluster.fail("DescribeProducers", code, times=None)
                await consumer.poll(timeout_ms=100_000)
                assert 1 <= look_ups(cluster) <= 4
                assert consumer.explain().reasons == (
                    "t-0: 1 offset waits for the end of an open transaction",
                )

    run_virtual(main)
    assert not [each for each in caplog.messages if "producer" in each.lower()]
