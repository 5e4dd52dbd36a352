"""A class is no listener."""

from __future__ import annotations

from kohort import ConsumerRebalanceListener, KafkaConsumer


class Listener(ConsumerRebalanceListener): ...


# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer(group_id="g").subscribe(["orders"], listener=Listener)
