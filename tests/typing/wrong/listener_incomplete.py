"""A listener has both methods."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition


class Listener:
    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None: ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener())
