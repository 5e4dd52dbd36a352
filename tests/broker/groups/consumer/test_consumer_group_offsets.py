"""Offsets of consumer groups: commits with epochs, transactions, deletion, expiration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from kohort.broker.groups import OffsetToCommit
from kohort.protocol.messages import OffsetCommitRequest, TxnOffsetCommitRequest
from tests.broker.groups.consumer.group_lives import TOPICS, lives, record_type, shown, uuid_bytes
from tests.broker.groups.coordinator_driver import CoordinatorDriver
from tests.support.virtual import run_virtual


def play(scene: Callable[[CoordinatorDriver], Awaitable[None]], **settings: Any) -> None:
    """Run a scene with a coordinator whose timers run on a virtual clock."""

    async def main() -> None:
        driver = CoordinatorDriver(**settings)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(driver.coordinator.run)
            await scene(driver)
            tasks.cancel_scope.cancel()

    run_virtual(main)


def offset(partition: int, topic: str = "ka") -> OffsetToCommit:
    return OffsetToCommit(topic, uuid_bytes(TOPICS[topic][1]), partition, 5, -1, "")


def commit(
    driver: CoordinatorDriver, member_id: str, epoch: int, *partitions: int, version: int = 9
) -> list[int]:
    """Commit offsets of ka and return the error codes."""
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id
    )
    offsets = [offset(partition) for partition in partitions]
    return list(driver.coordinator.commit(request, offsets, version))


def commit_in_transaction(
    driver: CoordinatorDriver, member_id: str, epoch: int, version: int = 5
) -> int:
    request = TxnOffsetCommitRequest(
        group_id="g", producer_id=1, member_id=member_id, generation_id_or_member_epoch=epoch
    )
    (error,), _ = driver.coordinator.commit_in_transaction(request, [offset(0)], version)
    return error


def two_members(driver: CoordinatorDriver) -> None:
    """Let a have 0 and 1 since epoch 2, and b have 2 and 3 since epoch 3."""
    driver.join_consumer("a")
    driver.join_consumer("b")
    driver.beat("a", 2)
    driver.beat("a", 2, [0, 1])
    driver.beat("b", 3)


def test_older_epoch_commits_partitions_assigned_by_then() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        two_members(driver)
        assert commit(driver, "a", 3, 0, 3) == [0, 0], "the member epoch may commit anything"
        assert commit(driver, "a", 2, 0, 1) == [0, 0]
        assert commit(driver, "a", 2, 0, 3) == [113, 113]
        assert commit(driver, "a", 1, 0) == [113]
        assert commit(driver, "b", 2, 2) == [113]
        assert commit(driver, "a", 4, 0) == [113]

    play(scene)


def test_partitions_to_be_revoked_are_committed_with_older_epoch() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        two_members(driver)
        driver.join_consumer("c")
        driver.beat("a", 3)
        group = driver.coordinator.groups["g"]
        assert group.state.value == "Reconciling"
        assert commit(driver, "a", 2, 0, 1) == [0, 0]

    play(scene)


def test_commits_do_not_restart_the_session() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("a")
        await anyio.sleep(40)
        assert commit(driver, "a", 2, 0) == [0]
        await anyio.sleep(5.1)
        assert commit(driver, "a", 2, 0) == [25]

    play(scene)


def test_empty_group_accepts_commits_of_administrators() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("a")
        assert commit(driver, "", -1, 0) == [25]
        driver.beat("a", -1)
        assert commit(driver, "", -1, 0) == [0]

    play(scene)


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [("a", 2, 0), ("a", 1, 113), ("a", 3, 113), ("x", 2, 25), ("", -1, 0)],
)
def test_transactions_commit_with_the_member_epoch(member_id: str, epoch: int, error: int) -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        assert commit_in_transaction(driver, "a", 2, version=6) == 69
        assert commit_in_transaction(driver, "a", 2) == 22
        driver.join_consumer("a")
        assert commit_in_transaction(driver, member_id, epoch, version=6) == error
        assert commit_in_transaction(driver, member_id, epoch) == (22 if error == 113 else error)

    play(scene)


def test_offsets_expire_when_nobody_subscribes_to_their_topic() -> None:
    async def scene(driver: CoordinatorDriver) -> None:
        driver.join_consumer("a")
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=2, member_id="a")
        driver.coordinator.commit(request, [offset(0), offset(0, "kb")], 9)
        for _ in range(60):
            await anyio.sleep(40)
            driver.beat("a", 2)
        assert set(driver.coordinator.groups["g"].offsets) == {("ka", 0)}
        driver.beat("a", -1)
        driver.batches.clear()
        await anyio.sleep(1900)
        assert "g" not in driver.coordinator.groups
        assert [record_type(record) for record in driver.appended] == [1, 6, 4, 3]

    play(scene, offsets_retention_minutes=20)


def test_deletion_writes_the_tombstones_of_kafka() -> None:
    async def main() -> None:
        steps = lives()["life"]
        driver = CoordinatorDriver("life")
        driver.load([record for step in steps[:20] for record in step.records])
        assert driver.coordinator.delete_group("life") == 0
        assert list(map(shown, driver.appended)) == list(map(shown, steps[20].records))

    run_virtual(main)
