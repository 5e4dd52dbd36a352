"""The asynchronous consumer has an option of its own."""

from __future__ import annotations

from kohort import AsyncConsumerOptions, AsyncKafkaConsumer

options: AsyncConsumerOptions = {"rebalance_without_poll": "always"}
AsyncKafkaConsumer("orders", **options)
