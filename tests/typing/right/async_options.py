"""AsyncKafkaConsumer has an option that KafkaConsumer lacks."""

from __future__ import annotations

from kohort import AsyncConsumerOptions, AsyncKafkaConsumer

options: AsyncConsumerOptions = {"rebalance_without_poll": "always"}
AsyncKafkaConsumer("orders", **options)
