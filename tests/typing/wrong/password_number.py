"""A password is no number."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer("orders", sasl_plain_password=1234)
