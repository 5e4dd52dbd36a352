"""The consumer: the engine, where all parts are put together, and its two faces."""

from __future__ import annotations

from kohort.consumer._async import AsyncKafkaConsumer
from kohort.consumer._sync import KafkaConsumer

__all__ = ["AsyncKafkaConsumer", "KafkaConsumer"]
