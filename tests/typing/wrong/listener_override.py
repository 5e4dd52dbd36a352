"""An overriding method takes the partitions. pyright reports where the listener is used."""

from __future__ import annotations

from kohort import ConsumerRebalanceListener, KafkaConsumer


class Listener(ConsumerRebalanceListener):
    # expect: mypy override
    def on_partitions_revoked(self) -> None: ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener())
