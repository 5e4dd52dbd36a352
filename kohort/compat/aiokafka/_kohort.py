"""kohort's consumer, and what turns its values and errors into aiokafka's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort import AsyncKafkaConsumer
from kohort import TopicPartition as NativePartition
from kohort.compat.aiokafka._calls import CallQueue
from kohort.compat.aiokafka._errors import ErrorTranslator
from kohort.compat.aiokafka._options import native_options
from kohort.compat.aiokafka._values import AioRecordConverter

START_MS = 3
"""Time between two looks at the assignment in ``start()``."""
WAIT_MS = 20
"""Time between two looks at the assignment in other calls."""
POLL_MS = 1000
"""Time between two looks at the subscription while ``getone()`` waits for partitions."""
NOWHERE = [NativePartition("kohort-no-such-topic", 0)]
"""Partition that is never assigned: a poll of it runs callbacks and returns no record."""


class NativeConsumer:
    """One consumer of kohort, with the options and conversions of a consumer of aiokafka."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.options: dict[str, Any] = native_options(given)
        self.errors = ErrorTranslator(
            given["bootstrap_servers"], given["max_partition_fetch_bytes"]
        )
        self.converter = AioRecordConverter(given["key_deserializer"], given["value_deserializer"])
        self.calls = CallQueue()
        self.native: AsyncKafkaConsumer[Any, Any]
        self.renew()

    @property
    def request_seconds(self) -> float:
        """Option ``request_timeout_ms`` in seconds."""
        seconds: float = self.options["request_timeout_ms"] / 1000
        return seconds

    def renew(self) -> None:
        """Make a consumer, which is not started."""
        with self.errors.translating():
            self.native = AsyncKafkaConsumer(**self.options)
