"""A function that passes options on refuses an unknown one."""

from __future__ import annotations

from typing import Unpack

from kohort import ConsumerOptions, KafkaConsumer


def make(**options: Unpack[ConsumerOptions]) -> KafkaConsumer[bytes, bytes]:
    return KafkaConsumer("orders", **options)


# expect: mypy call-arg | pyright reportCallIssue
make(group="billing")
