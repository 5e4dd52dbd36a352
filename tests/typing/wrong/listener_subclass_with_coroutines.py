"""KafkaConsumer cannot await a subclass either."""

from __future__ import annotations

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition


class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None: ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener())
