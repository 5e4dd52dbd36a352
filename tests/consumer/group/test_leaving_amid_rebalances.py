"""close() at each step of a membership: the group does not wait for the member afterwards."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import anyio
import pytest

from kohort.errors import KafkaError
from kohort.testing import Cluster, MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Recorder, poll_until
from tests.consumer.virtual import MemoryConsumer, poll_for, polled, values
from tests.support.virtual import run_virtual

EAGER: dict[str, Any] = {"group_protocol": "classic", "partition_assignment_strategy": ["range"]}
COOPERATIVE: dict[str, Any] = {
    "group_protocol": "classic",
    "partition_assignment_strategy": ["cooperative-sticky"],
}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
AUTO: dict[str, Any] = {"group_protocol": "auto"}
MEMBERS = pytest.mark.parametrize(
    "kind",
    [EAGER, COOPERATIVE, CONSUMER, AUTO],
    ids=["eager", "cooperative", "consumer", "auto"],
)
FIRST_REQUESTS = ("JoinGroup", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat")
NEVER = 1e9
LIMIT = 4.0
"""Seconds that close() gives to callbacks by default, of its 5 s."""
REASSIGNED = 15.0
"""Seconds in which another member gets the partitions. A session takes 45 s to expire."""


class Gate:
    """A listener, of which the next call of one method takes the given time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.entered: list[str] = []

    async def _called(self, name: str) -> None:
        self.entered.append(name)
        await anyio.sleep(self.seconds.pop(name, 0.0))

    async def on_partitions_assigned(self, _: Iterable[TopicPartition]) -> None:
        await self._called("assigned")

    async def on_partitions_revoked(self, _: Iterable[TopicPartition]) -> None:
        await self._called("revoked")


class Stage:
    """A member that will close, and another one that gets its partitions."""

    def __init__(
        self, cluster: MemoryCluster, one: MemoryConsumer, other: MemoryConsumer, gate: Gate
    ) -> None:
        self.cluster, self.one, self.other, self.gate = cluster, one, other, gate

    async def join(self) -> None:
        """Poll until the member has both partitions."""
        await poll_for(self.one, lambda: len(self.one.assignment()) == 2)

    async def poll(self, holds: Callable[[], object]) -> None:
        """Poll until the predicate holds, also inside a poll that waits for a listener."""
        async with polled(self.one):
            await self.cluster.wait_until(holds)

    def waits_for(self, state: str) -> Callable[[], bool]:
        """Return a predicate that is true in this state of the membership."""

        def holds() -> bool:
            coordinator = self.one._driver.engine.coordinator
            return coordinator is not None and coordinator.snapshot().state == state

        return holds


async def _before_the_first_request(stage: Stage) -> None:
    await stage.one.poll(timeout_ms=0)


async def _first_request_in_flight(stage: Stage) -> None:
    for api in FIRST_REQUESTS:
        stage.cluster.delay(api, 0.3)
    await stage.poll(stage.waits_for("joining"))


async def _join_waits_for_another_member(stage: Stage) -> None:
    stage.other.subscribe(["t"])
    await values(stage.other, 1)  # it holds records, so it does not rejoin
    await stage.poll(
        lambda: len(stage.cluster.group("g").members) == 2 and stage.one.group_metadata().member_id
    )


async def _rejoin_waits_for_another_member(stage: Stage) -> None:
    await stage.join()
    stage.other.subscribe(["t"])
    async with polled(stage.one):
        await poll_for(stage.other, stage.other.assignment)
        for number in range(2):
            stage.cluster.produce("t", ["c"], partition=number)
        await values(stage.other, 1)  # it holds records, so it does not rejoin
        stage.one.enforce_rebalance()
        await anyio.sleep(4)


async def _sync_waits_for_the_leader(stage: Stage) -> None:
    stage.other.subscribe(["t"])
    await poll_for(stage.other, stage.other.assignment)
    stage.cluster.delay("SyncGroup", 20.0, client_id="other")
    async with polled(stage.other):
        await stage.poll(
            lambda: (
                len(stage.cluster.group("g").members) == 2
                and stage.one.group_metadata().member_id
                and not stage.waits_for("joining")()
            )
        )


async def _assigned_callback_runs(stage: Stage, seconds: float = 2.0) -> None:
    stage.gate.seconds["assigned"] = seconds
    await stage.poll(lambda: "assigned" in stage.gate.entered)


async def _revoked_callback_runs(stage: Stage, seconds: float = 2.0) -> None:
    await stage.join()
    stage.gate.seconds["revoked"] = seconds
    stage.other.subscribe(["t"])
    async with polled(stage.other):
        await stage.poll(lambda: "revoked" in stage.gate.entered)


async def _stable(stage: Stage, seconds: float = 0.0) -> None:
    await stage.join()
    stage.gate.seconds["revoked"] = seconds


Moment = Callable[[Stage], Awaitable[None]]
MOMENTS: dict[str, tuple[Moment, float]] = {
    "before the first request": (_before_the_first_request, 0.5),
    "first request in flight": (_first_request_in_flight, 1.0),
    "join waits for another member": (_join_waits_for_another_member, 0.5),
    "rejoin waits for another member": (_rejoin_waits_for_another_member, 0.5),
    "sync waits for the leader": (_sync_waits_for_the_leader, 0.5),
    "assigned callback runs": (_assigned_callback_runs, 2.5),
    "assigned callback never ends": (partial(_assigned_callback_runs, seconds=NEVER), 5.0),
    "revoked callback runs": (_revoked_callback_runs, 2.5),
    "revoked callback never ends": (partial(_revoked_callback_runs, seconds=NEVER), 5.0),
    "stable": (_stable, 0.5),
    "last callback takes too long": (partial(_stable, seconds=LIMIT + 0.5), 5.0),
    "last callback never ends": (partial(_stable, seconds=NEVER), 5.0),
}
"""Each moment, and the seconds that close() may take there."""


async def _close_at(
    moment: Moment,
    options: dict[str, Any],
    check: Callable[[Stage, float], Awaitable[None]],
    **close: Any,
) -> None:
    async with MemoryCluster(topics={"t": 2}) as cluster:
        for number in range(2):
            cluster.produce("t", ["a", "b"], partition=number)
        instance, options = options.get("group_instance_id"), dict(options)
        options.pop("group_instance_id", None)
        one = MemoryConsumer(cluster, client_id="one", group_instance_id=instance, **options)
        async with one, MemoryConsumer(cluster, client_id="other", **options) as other:
            stage = Stage(cluster, one, other, Gate())
            one.subscribe(["t"], listener=stage.gate)
            await moment(stage)
            began = anyio.current_time()
            await one.close(**close)
            await check(stage, anyio.current_time() - began)


@MEMBERS
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_closed_member_leaves_the_group_at_once(moment: str, kind: dict[str, Any]) -> None:
    reach, limit = MOMENTS[moment]

    async def check(stage: Stage, took: float) -> None:
        assert took <= limit
        assert all(each.client_id != "one" for each in stage.cluster.group("g").members)
        stage.cluster.stop_faults()
        if not stage.other.subscription():
            stage.other.subscribe(["t"])
        with anyio.fail_after(REASSIGNED):
            await poll_for(stage.other, lambda: len(stage.other.assignment()) == 2)

    run_virtual(lambda: _close_at(reach, kind, check))


@pytest.mark.parametrize("kind", [EAGER, CONSUMER], ids=["classic", "consumer"])
@pytest.mark.parametrize("moment", ["assigned callback never ends", "last callback never ends"])
@pytest.mark.parametrize(
    ("instance", "leave_group", "stays"),
    [(None, False, True), ("it", None, True), ("it", True, False)],
)
def test_a_callback_that_never_ends_does_not_decide_who_stays(
    instance: str | None,
    leave_group: bool | None,
    stays: bool,
    moment: str,
    kind: dict[str, Any],
) -> None:
    async def check(stage: Stage, took: float) -> None:
        assert took <= 5
        members = [each for each in stage.cluster.group("g").members if each.client_id == "one"]
        assert bool(members) == stays
        if instance is None or not stays:
            return
        async with MemoryConsumer(
            stage.cluster, client_id="again", group_instance_id=instance, **kind
        ) as again:
            again.subscribe(["t"])
            with anyio.fail_after(REASSIGNED):
                await poll_for(again, lambda: len(again.assignment()) == 2)

    run_virtual(
        lambda: _close_at(
            MOMENTS[moment][0],
            {**kind, "group_instance_id": instance},
            check,
            leave_group=leave_group,
        )
    )


@MEMBERS
def test_a_cancelled_start_leaves_the_group(kind: dict[str, Any]) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            async with MemoryConsumer(cluster, "t", client_id="other", **kind) as other:
                await values(other, 0)
                with anyio.move_on_after(2.0):
                    async with MemoryConsumer(cluster, "t", client_id="one", **kind):
                        await anyio.sleep_forever()
                assert [each.client_id for each in cluster.group("g").members] == ["other"]

    run_virtual(main)


@MEMBERS
def test_a_second_close_waits_for_the_first_one(kind: dict[str, Any]) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            gate = Gate()
            async with MemoryConsumer(cluster, client_id="one", **kind) as one:
                one.subscribe(["t"], listener=gate)
                await poll_for(one, one.assignment)
                gate.seconds["revoked"] = 2.0
                began = anyio.current_time()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(one.close)
                    tasks.start_soon(one.close)
                assert anyio.current_time() - began <= 2.5
                assert gate.entered.count("revoked") == 1
                assert not cluster.group("g").members

    run_virtual(main)


@pytest.mark.parametrize("kind", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "coop", "consumer"])
def test_a_listener_that_takes_longer_than_close_still_leaves(
    kind: dict[str, Any], cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    began = time.monotonic()
    slow = Recorder(revoked=lambda _: cluster.wait_until(lambda: time.monotonic() > began + 0.5))
    consumer = make(group_id=group, **kind)
    consumer.subscribe([topic], listener=slow)
    poll_until(consumer, consumer.assignment)
    began = time.monotonic()
    try:
        consumer.close(timeout_ms=100)
    except KafkaError as error:
        raise AssertionError("close() must not raise for a failed leave") from error
    assert slow.names == ["assigned", "revoked"]
    cluster.wait_until(lambda: not cluster.group(group).members)
