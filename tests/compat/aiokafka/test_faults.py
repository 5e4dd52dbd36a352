"""Faults of the cluster reach a program as aiokafka's errors, and reading goes on after them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import ErrorCode
from kohort.testing import Cluster
from tests.compat.aiokafka.kit import make_listener, until, within
from tests.consumer.kit import remove_members

pytestmark = pytest.mark.anyio


@pytest.fixture
def faulty() -> Iterator[Cluster]:
    """Return a cluster with one record in each of two topics."""
    with Cluster(topics={"old": 1, "new": 1}) as cluster:
        for topic in ("old", "new"):
            cluster.produce(topic, [b"%s-%d" % (topic.encode(), each) for each in range(3)])
        yield cluster


@pytest.fixture
async def consumer(compat: Any, faulty: Cluster, anyio_backend: str) -> AsyncIterator[Any]:
    """Return a consumer in a group, which reads from the beginning."""
    consumer = compat.AIOKafkaConsumer(
        bootstrap_servers=faulty.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
    )
    yield consumer
    await consumer.stop()


async def test_records_of_the_old_subscription_are_not_returned(consumer: Any) -> None:
    consumer.subscribe(["old"])
    await within(consumer.start())
    assert (await within(consumer.getone())).value == b"old-0"
    pending = asyncio.create_task(consumer.getmany(timeout_ms=20000))
    consumer.subscribe(["new"])
    found = [each.topic for records in (await within(pending)).values() for each in records]
    found += [(await within(consumer.getone())).topic for _ in range(3 - len(found))]
    assert found == ["new"] * 3


async def test_seek_drops_buffered_records(consumer: Any, compat: Any) -> None:
    consumer.subscribe(["old"])
    await within(consumer.start())
    assert (await within(consumer.getone())).offset == 0
    consumer.seek(compat.TopicPartition("old", 0), 2)
    assert (await within(consumer.getone())).offset == 2


async def test_group_error_comes_out_of_each_getone(
    consumer: Any, compat: Any, faulty: Cluster
) -> None:
    consumer.subscribe(["old"])
    await within(consumer.start())
    with faulty.fail("JoinGroup", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
        consumer.subscribe(["new"])
        for _ in range(2):
            with pytest.raises(compat.errors.GroupAuthorizationFailedError) as raised:
                await within(consumer.getone())
            assert raised.value.args[0] == "billing"


async def test_corrupt_batch_raises_and_is_read_when_repaired(
    consumer: Any, compat: Any, faulty: Cluster
) -> None:
    faulty.produce("old", [b"last"])
    consumer.subscribe(["old"])
    with faulty.corrupt(TopicPartition("old", 0), 3):
        await within(consumer.start())
        assert [(await within(consumer.getone())).offset for _ in range(3)] == [0, 1, 2]
        with pytest.raises(compat.errors.CorruptRecordException):
            await within(consumer.getone())
    async with asyncio.timeout(20):
        while True:
            try:
                record = await consumer.getone()
                break
            except compat.errors.CorruptRecordException:
                await asyncio.sleep(0.01)
    assert record.value == b"last"


async def test_lost_membership_is_a_revocation(consumer: Any, compat: Any, faulty: Cluster) -> None:
    listener = make_listener(compat)
    consumer.subscribe(["old"], listener=listener)
    await within(consumer.start())
    remove_members(faulty, "billing")
    await until(lambda: len(listener.calls) == 4)
    assert [name for name, _ in listener.calls] == ["revoked", "assigned"] * 2
    assert listener.calls[2] == ("revoked", [("old", 0)])
