"""The ready-made listeners on both APIs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import RebalanceListenerError
from kohort.listeners import CommitOnRevoke, ExternalOffsets, ListenerChain
from kohort.testing import Cluster, MemoryCluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Recorder, evict, poll_until, read
from tests.consumer.virtual import PROTOCOLS, MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

T0 = TopicPartition("t", 0)


def test_positions_are_committed_before_partitions_go(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"b"], partition=0)
    consumer = make(group_id=group, enable_auto_commit=False)
    consumer.subscribe([topic], listener=CommitOnRevoke(consumer))
    read(consumer, 2)
    assert consumer.positions()[TopicPartition(topic, 0)] == 2
    assert cluster.committed(group) == {}
    consumer.close()
    assert cluster.committed(group)[TopicPartition(topic, 0)].offset == 2


def test_what_was_lost_is_not_committed(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a", b"b"], partition=0)
    consumer = make(group_id=group, enable_auto_commit=False)
    mine = Recorder()
    consumer.subscribe([topic], listener=ListenerChain(CommitOnRevoke(consumer), mine))
    read(consumer, 2)
    evict(cluster, group)
    poll_until(consumer, lambda: "lost" in mine.names)
    assert cluster.committed(group) == {}


@PROTOCOLS
@pytest.mark.parametrize("how", ["close", "unsubscribe", "rebalance"])
def test_positions_are_committed_on_the_async_face(how: str, protocol: str) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "u": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            consumer = MemoryConsumer(cluster, group_protocol=protocol, enable_auto_commit=False)
            listener = CommitOnRevoke(consumer)
            consumer.subscribe(["t"], listener=listener)
            async with consumer:
                await values(consumer, 2)
                if how == "close":
                    await consumer.close()
                elif how == "unsubscribe":
                    await consumer.unsubscribe()
                else:
                    consumer.subscribe(["u"], listener=listener)
                    await poll_for(consumer, lambda: T0 not in consumer.assignment())
                assert cluster.committed("g")[T0].offset == 2

    run_virtual(main)


def test_offsets_from_elsewhere_decide_where_to_start(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.produce(topic, [b"a", b"b", b"c"], partition=0)
    cluster.produce(topic, [b"x"], partition=1)
    store: dict[TopicPartition, int] = {tp: 2}
    for expected in ([b"c", b"x"], [b"d"]):
        consumer = make(group_id=group, enable_auto_commit=False)
        listener = ExternalOffsets(
            consumer, load=lambda asked: {tp: store.get(tp) for tp in asked}, save=store.update
        )
        consumer.subscribe([topic], listener=listener)
        assert {r.value for r in read(consumer, len(expected))} == set(expected)
        consumer.close()
        cluster.produce(topic, [b"d"], partition=0)
    assert store == {tp: 4, other: 1}


@pytest.mark.parametrize("awaited", [True, False])
def test_offsets_from_elsewhere_on_the_async_face(awaited: bool) -> None:
    store: dict[TopicPartition, int] = {T0: 1}

    def load(_: Any) -> dict[TopicPartition, int]:
        return dict(store)

    async def aload(_: Any) -> dict[TopicPartition, int]:
        await anyio.sleep(1)
        return dict(store)

    async def asave(offsets: dict[TopicPartition, int]) -> None:
        await anyio.sleep(1)
        store.update(offsets)

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a", "b"])
            consumer = MemoryConsumer(cluster, enable_auto_commit=False)
            functions: dict[str, Any] = {
                "load": aload if awaited else load,
                "save": asave if awaited else store.update,
            }
            consumer.subscribe(["t"], listener=ExternalOffsets(consumer, **functions))
            async with consumer:
                assert await values(consumer, 1) == [b"b"]
                await consumer.unsubscribe()
            assert store == {T0: 2}

    run_virtual(main)


def test_a_chain_calls_all_in_order_and_raises_the_first_error(
    topic: str, group: str, make: MakeConsumer
) -> None:
    def fails(_: Any) -> None:
        raise ValueError("the first")

    def fails_too(_: Any) -> None:
        raise KeyError("the second")

    class OfAnotherClient:
        def on_partitions_revoked(self, revoked: Any) -> None:
            called.append(revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            called.append(assigned)

    called: list[Any] = []
    one, two = Recorder(assigned=fails), Recorder(assigned=fails_too)
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=ListenerChain(one, two, OfAnotherClient()))
    with pytest.raises(RebalanceListenerError, match="the first"):
        poll_until(consumer, lambda: False)
    consumer.close()
    assert one.names == two.names == ["assigned", "revoked"]
    assert len(called) == 2


def test_a_chain_awaits_what_has_to_be_awaited() -> None:
    class Waits:
        async def on_partitions_assigned(self, assigned: Any) -> None:
            await anyio.sleep(1)
            order.append("assigned")

        async def on_partitions_revoked(self, revoked: Any) -> None:
            await anyio.sleep(1)
            order.append("revoked")
            raise ValueError("from the listener")

    order: list[str] = []
    plain = Recorder(
        assigned=lambda _: order.append("plain"), revoked=lambda _: order.append("plain")
    )

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            consumer = MemoryConsumer(cluster)
            consumer.subscribe(["t"], listener=ListenerChain(Waits(), plain))
            async with consumer:
                await poll_for(consumer, consumer.assignment)
                with pytest.raises(RebalanceListenerError, match="from the listener"):
                    await consumer.close()
        assert order == ["assigned", "plain", "revoked", "plain"]

    run_virtual(main)


def test_what_awaits_is_refused_by_the_synchronous_face(options: dict[str, Any]) -> None:
    async def load(_: Any) -> dict[TopicPartition, int]:
        return {}

    consumer = KafkaConsumer(group_id="g", **options)
    listener = ExternalOffsets(consumer, load=load, save=print)
    for each in (listener, ListenerChain(listener)):
        with pytest.raises(TypeError, match="AsyncKafkaConsumer"):
            consumer.subscribe(["t"], listener=each)
    with pytest.raises(TypeError, match="on_partitions_revoked"):
        ListenerChain(object())  # type: ignore[arg-type]
