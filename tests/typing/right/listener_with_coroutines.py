"""Methods of a listener may be coroutine functions with AsyncKafkaConsumer."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, AsyncRebalanceListener, TopicPartition


class Listener:
    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None: ...
    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None: ...


def consumer(listener: AsyncRebalanceListener) -> AsyncKafkaConsumer[bytes, bytes]:
    made = AsyncKafkaConsumer(group_id="billing")
    made.subscribe(["orders"], listener=listener)
    return made


consumer(Listener())
