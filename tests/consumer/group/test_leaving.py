"""The effect of close() and stop() on the group, and the time that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort.errors import KafkaError
from kohort.testing import Cluster, MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.conftest import CLASSIC, MakeConsumer
from tests.consumer.kit import Recorder, poll_until
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    HEARTBEATS,
    PROTOCOLS,
    ClassicConsumer,
    MemoryConsumer,
    poll_for,
    polled,
    values,
)
from tests.support.virtual import run_virtual


@pytest.mark.parametrize(
    ("instance", "leave_group", "stays"),
    [
        (None, None, False),
        (None, True, False),
        (None, False, True),
        ("one", None, True),
        ("one", True, False),
        ("one", False, True),
    ],
)
def test_who_stays_in_the_group(
    instance: str | None,
    leave_group: bool | None,
    stays: bool,
    cluster: Cluster,
    topic: str,
    group: str,
    make: MakeConsumer,
) -> None:
    listener = Recorder()
    consumer = make(group_id=group, group_instance_id=instance)
    consumer.subscribe([topic], listener=listener)
    poll_until(consumer, consumer.assignment)
    consumer.close(leave_group=leave_group)
    assert bool(cluster.group(group).members) == stays
    assert listener.names == ["assigned", "revoked"], "whether it stays or not"


@EACH_PROTOCOL
@pytest.mark.parametrize("leave_group", [None, True, False])
@pytest.mark.parametrize("instance", [None, "one"])
def test_who_stays_in_the_group_on_the_async_face(
    instance: str | None, leave_group: bool | None
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_instance_id=instance) as consumer:
                await poll_for(consumer, consumer.assignment)
                await consumer.close(leave_group=leave_group)
                stays = instance is not None if leave_group is None else not leave_group
                assert bool(cluster.group("g").members) == stays
            await anyio.sleep(46)
            assert not cluster.group("g").members, "the session is over"

    run_virtual(main)


def test_a_listener_can_close_and_stay(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(group_id=group)
    close = Recorder(assigned=lambda _: consumer.close(leave_group=False))
    consumer.subscribe([topic], listener=close)
    poll_until(consumer, lambda: consumer._driver.life.is_closed)
    assert cluster.group(group).members


# -- never long ------------------------------------------------------------------------------------

Prepare = Callable[[MemoryCluster, MemoryConsumer], Any]


def _dead(cluster: MemoryCluster, _: MemoryConsumer) -> None:
    cluster.kill_broker(1)


def _silent(cluster: MemoryCluster, _: MemoryConsumer) -> None:
    cluster.network_partition(client_id="it")


def _hangs(cluster: MemoryCluster, _: MemoryConsumer) -> None:
    for api in ("OffsetCommit", "LeaveGroup", *HEARTBEATS.values(), "JoinGroup", "SyncGroup"):
        cluster.hang(api, client_id="it")


def _rebalancing(cluster: MemoryCluster, consumer: MemoryConsumer) -> None:
    consumer.enforce_rebalance("a test")
    cluster.hang("SyncGroup")


def _idle(*_: object) -> None:
    pass


@PROTOCOLS
@pytest.mark.parametrize("polling", [True, False])
@pytest.mark.parametrize("prepare", [_idle, _dead, _silent, _hangs, _rebalancing])
def test_stopping_takes_five_seconds_at_most(
    prepare: Prepare, polling: bool, protocol: str
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a", "b"])
            options: dict[str, Any] = {"group_protocol": protocol, "max_poll_interval_ms": 10_000}
            other = MemoryConsumer(cluster, "t", client_id="other", **options)
            consumer = MemoryConsumer(cluster, client_id="it", **options)
            listener = Recorder()
            consumer.subscribe(["t"], listener=listener)
            async with other, consumer:
                await values(consumer, 1)  # the other does not poll, so it has left
                prepare(cluster, consumer)
                if polling:
                    with anyio.move_on_after(1.0):
                        await poll_for(consumer, lambda: False)
                begun = anyio.current_time()
                try:
                    await consumer.close()
                except KafkaError as error:
                    raise AssertionError("stop() must not raise for a failed leave") from error
                assert anyio.current_time() - begun <= 5
                cluster.stop_faults()
            assert _partitions(listener, "revoked") == _partitions(listener, "assigned")

    run_virtual(main)


def _partitions(listener: Recorder, name: str) -> list[TopicPartition]:
    """Return the partitions of all calls of a method."""
    return sorted(tp for each, partitions in listener.calls if each == name for tp in partitions)


@EACH_PROTOCOL
def test_async_close_abandons_a_listener_that_never_returns() -> None:
    class Stuck:
        def on_partitions_assigned(self, _: Any) -> None:
            pass

        async def on_partitions_revoked(self, _: Any) -> None:
            await anyio.sleep_forever()

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            consumer = MemoryConsumer(cluster)
            consumer.subscribe(["t"], listener=Stuck())
            async with consumer:
                begun = anyio.current_time()
            assert anyio.current_time() - begun <= 5

    run_virtual(main)


@EACH_PROTOCOL
def test_a_stop_from_inside_a_listener_leaves_as_it_was_told() -> None:
    class Stops:
        def on_partitions_revoked(self, _: Any) -> None:
            pass

        async def on_partitions_assigned(self, _: Any) -> None:
            await made[0].close(leave_group=False)

    made: list[MemoryConsumer] = []

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            made.append(consumer := MemoryConsumer(cluster))
            consumer.subscribe(["t"], listener=Stops())
            async with consumer:
                pass
            assert len(cluster.group("g").members) == 1

    run_virtual(main)


# -- rebalances that are asked for -----------------------------------------------------------------


def test_enforced_rebalance_sends_its_reason_to_the_coordinator() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            one = ClassicConsumer(cluster, "t", client_id="one")
            two = ClassicConsumer(cluster, "t", client_id="two")
            async with one, polled(one), two, polled(two):
                await cluster.wait_until(lambda: len(cluster.group("g").members) == 2)
                await cluster.wait_until(lambda: cluster.group("g").is_stable)
                before = cluster.group("g").generation
                two.enforce_rebalance("the weights changed")
                await cluster.wait_until(lambda: cluster.group("g").generation > before)
                await cluster.wait_until(lambda: cluster.group("g").is_stable)
                reasons = [getattr(r.message, "reason", "") for r in cluster.requests]
                assert "the weights changed" in reasons
                assert cluster.group("g").generation == before + 1

    run_virtual(main)


def test_the_synchronous_face_enforces_a_rebalance_too(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    listener = Recorder()
    consumer = make(group_id=group, **CLASSIC)
    consumer.subscribe([topic], listener=listener)
    poll_until(consumer, consumer.assignment)
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert listener.names == ["assigned", "revoked", "assigned"]
    with pytest.raises(TypeError, match="reason"):
        consumer.enforce_rebalance(7)  # type: ignore[arg-type] # what the test is about
    consumer.unsubscribe()
    with pytest.raises(KafkaError, match="subscribe"):
        consumer.enforce_rebalance()
    consumer.assign([TopicPartition(topic, 0)])
    with pytest.raises(KafkaError, match="subscribe"):
        consumer.enforce_rebalance()
    with pytest.raises(KafkaError, match="group_id"):
        make(topic).enforce_rebalance()
