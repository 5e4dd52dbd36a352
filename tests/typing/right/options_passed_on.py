"""A function passes options on."""

from __future__ import annotations

from typing import Unpack

from kohort import ConsumerOptions, KafkaConsumer


def make(*topics: str, **options: Unpack[ConsumerOptions]) -> KafkaConsumer[str, bytes]:
    return KafkaConsumer(*topics, key_deserializer=bytes.decode, **options)


make("orders", group_id="billing", max_poll_records=10)
