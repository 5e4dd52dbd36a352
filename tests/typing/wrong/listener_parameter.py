"""The second parameter of a listener's method is named rebalance."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition
from kohort.listeners import RebalanceContext


class Listener:
    def on_partitions_revoked(
        self, revoked: frozenset[TopicPartition], context: RebalanceContext
    ) -> None: ...
    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None: ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener())
