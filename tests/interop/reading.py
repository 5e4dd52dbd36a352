"""Reading with a consumer in the test's thread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kohort
from kohort.errors import UnknownTopicOrPartitionError
from tests.interop.peers import HEARTBEAT_MS, SESSION_MS
from tests.interop.waiting import wait_until

Record = kohort.ConsumerRecord[Any, Any]


def consumer(bootstrap_servers: str, *topics: str, **options: Any) -> kohort.KafkaConsumer:
    """Return a consumer from the beginning of the topics, with quick heartbeats."""
    defaults: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "enable_auto_commit": False,
    }
    return kohort.KafkaConsumer(*topics, **defaults | options)


def read(consumer: kohort.KafkaConsumer, count: int) -> list[Record]:
    """Poll until there are ``count`` records, and fail if there are more."""
    records: list[Record] = []

    def poll() -> None:
        for some in consumer.poll(timeout_ms=500).values():
            records.extend(some)

    wait_until(lambda: len(records) >= count, poll, explain=lambda: f"{count}: {records[-3:]}")
    assert len(records) == count
    return records


def idle(consumer: kohort.KafkaConsumer) -> Callable[[], None]:
    """Return a function that polls for a moment and asserts that no records came."""

    def poll() -> None:
        assert consumer.poll(timeout_ms=50) == {}

    return poll


def join(*consumers: kohort.KafkaConsumer, sizes: tuple[int, ...]) -> None:
    """Poll in turn until the consumers own ``sizes`` partitions. No records may be returned."""

    def poll() -> None:
        for one in consumers:
            one.pause(*one.assignment())
            assert one.poll(timeout_ms=50) == {}

    def owned() -> tuple[int, ...]:
        return tuple(len(one.assignment()) for one in consumers)

    wait_until(lambda: owned() == sizes, poll, explain=owned)
    for one in consumers:
        one.resume(*one.assignment())


def read_on(one: kohort.KafkaConsumer, count: int) -> list[bytes | None]:
    """Poll until ``count`` values came. A topic that is temporarily missing is no error."""
    values: list[bytes | None] = []

    def poll() -> None:
        with suppress(UnknownTopicOrPartitionError):
            for some in one.poll(timeout_ms=200).values():
                values.extend(record.value for record in some)

    wait_until(lambda: len(values) >= count, poll, explain=lambda: values)
    return values
