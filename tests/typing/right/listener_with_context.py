"""A method of a listener may have a parameter for the context of the rebalance."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.listeners import ListenerChain, RebalanceCause, RebalanceContext


class Subclass(ConsumerRebalanceListener):
    def on_partitions_revoked(
        self, revoked: frozenset[TopicPartition], rebalance: RebalanceContext
    ) -> None:
        cause: RebalanceCause = rebalance.cause
        print(cause, rebalance.reason, rebalance.deadline + 1.5)

    def on_partitions_lost(
        self, lost: frozenset[TopicPartition], *, rebalance: RebalanceContext
    ) -> None: ...


class ByMethods:
    def on_partitions_revoked(
        self, revoked: frozenset[TopicPartition], rebalance: RebalanceContext
    ) -> None: ...
    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None: ...


class WithCoroutines:
    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None: ...
    async def on_partitions_assigned(
        self, assigned: frozenset[TopicPartition], *, rebalance: RebalanceContext
    ) -> None: ...


KafkaConsumer(group_id="billing").subscribe(["orders"], listener=Subclass())
KafkaConsumer(group_id="billing").subscribe(["orders"], listener=ByMethods())
KafkaConsumer(group_id="billing").subscribe(
    ["orders"], listener=ListenerChain(Subclass(), ByMethods())
)
AsyncKafkaConsumer(group_id="billing").subscribe(["orders"], listener=ByMethods())
AsyncKafkaConsumer(group_id="billing").subscribe(["orders"], listener=WithCoroutines())
