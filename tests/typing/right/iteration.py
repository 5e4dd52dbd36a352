"""Iteration returns typed records."""

from __future__ import annotations

from typing import assert_type

from kohort import ConsumerRecord, KafkaConsumer

with KafkaConsumer("orders", value_deserializer=int, consumer_timeout_ms=1_000) as consumer:
    for record in consumer:
        assert_type(record, ConsumerRecord[bytes, int])
    assert_type(next(consumer), ConsumerRecord[bytes, int])
