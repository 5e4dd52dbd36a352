"""Bad data is not ignored."""

from __future__ import annotations

from kohort import KafkaConsumer

# expect: mypy call-overload | pyright reportArgumentType
KafkaConsumer("orders", on_error="ignore")
