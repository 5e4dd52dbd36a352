"""Partitions to pause are given one by one."""

from __future__ import annotations

from kohort import KafkaConsumer, TopicPartition

# expect: mypy arg-type | pyright reportArgumentType
KafkaConsumer("orders").pause([TopicPartition("orders", 0)])
