"""A security protocol has a name of Kafka."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer("orders", security_protocol="TLS")
