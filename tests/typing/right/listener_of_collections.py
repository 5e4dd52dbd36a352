"""A listener may accept a wider type than a frozenset."""

from __future__ import annotations

from collections.abc import Collection

from kohort import KafkaConsumer, TopicPartition


class Listener:
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None: ...
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None: ...
    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None: ...


KafkaConsumer(group_id="billing").subscribe(["orders"], listener=Listener())
