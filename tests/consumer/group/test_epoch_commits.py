"""Commits of members of a consumer group (KIP-848) while its epochs change."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kohort.errors import CommitFailedError, ErrorCode
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer, poll_for, polled, values
from tests.support.virtual import run_virtual

COUNT = 200
EPOCHS: dict[str, Any] = {"group_protocol": "consumer"}
QUICK: dict[str, Any] = {
    "consumer_heartbeat_interval_ms": 1_000,
    "consumer_assignment_interval_ms": 0,
}


def _produce(cluster: MemoryCluster, partitions: int) -> None:
    for number in range(partitions):
        cluster.produce("t", [f"{number}-{each}" for each in range(COUNT)], partition=number)


def test_commits_succeed_while_members_come_and_go() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 4}, **QUICK) as cluster:
            _produce(cluster, 4)
            failures: list[Exception] = []
            one = MemoryConsumer(
                cluster, "t", enable_auto_commit=False, max_poll_records=3, **EPOCHS
            )
            async with one, anyio.create_task_group() as tasks:

                async def read() -> None:
                    while True:
                        await one.poll(timeout_ms=100)
                        try:
                            await one.commit()
                        except CommitFailedError as error:
                            failures.append(error)
                        await anyio.sleep(0.05)

                await poll_for(one, lambda: len(one.assignment()) == 4)
                tasks.start_soon(read)
                for number in range(5):
                    name = f"other-{number}"
                    other = MemoryConsumer(cluster, "t", client_id=name, seed=number, **EPOCHS)
                    async with other, polled(other):
                        await cluster.wait_until(lambda: len(one.assignment()) == 2, 30)
                    await cluster.wait_until(lambda: len(one.assignment()) == 4, 30)
                tasks.cancel_scope.cancel()
            assert failures == []

    run_virtual(main)


def test_commit_is_repeated_after_a_rejected_epoch() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}, **QUICK) as cluster:
            _produce(cluster, 1)
            async with MemoryConsumer(cluster, "t", enable_auto_commit=False, **EPOCHS) as one:
                await values(one, COUNT)
                cluster.fail("OffsetCommit", ErrorCode.STALE_MEMBER_EPOCH, times=2)
                await one.commit()
            assert cluster.committed("g")[TopicPartition("t", 0)].offset == COUNT

    run_virtual(main)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_rejected_read_of_offsets_never_resets_the_position(code: ErrorCode) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}, **QUICK) as cluster:
            _produce(cluster, 1)
            options = {"enable_auto_commit": False, **EPOCHS}
            async with MemoryConsumer(cluster, "t", **options) as one:
                await values(one, COUNT)
                await one.commit({TopicPartition("t", 0): OffsetAndMetadata(50)})
            cluster.fail("OffsetFetch", code, times=3)
            options["auto_offset_reset"] = "latest"
            async with MemoryConsumer(cluster, "t", client_id="next", **options) as one:
                found = await values(one, COUNT - 50)
                assert found[0] == b"0-50"

    run_virtual(main)


def test_revoked_callback_commits_what_moves_to_another_member() -> None:
    class Committing(ConsumerRebalanceListener):
        consumer: MemoryConsumer

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await self.consumer.commit()

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}, **QUICK) as cluster:
            _produce(cluster, 2)
            listener = Committing()
            one = listener.consumer = MemoryConsumer(cluster, enable_auto_commit=False, **EPOCHS)
            one.subscribe(["t"], listener=listener)
            async with one:
                read = await values(one, 2 * COUNT)
                other = MemoryConsumer(cluster, "t", client_id="other", seed=9, **EPOCHS)
                async with other, polled(one), polled(other):
                    await cluster.wait_until(lambda: len(other.assignment()) == 1, 30)
                    (moved,) = other.assignment()
                    await cluster.wait_until(lambda: other.positions().get(moved) == COUNT, 30)
            assert len(set(read)) == 2 * COUNT

    run_virtual(main)
