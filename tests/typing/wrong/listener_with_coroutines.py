"""KafkaConsumer cannot await a listener."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition


class Listener:
    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None: ...
    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None: ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener())
