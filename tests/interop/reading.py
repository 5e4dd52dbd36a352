"""Reading with a consumer in the test's own thread."""

from __future__ import annotations

import time
from typing import Any

import kohort
from tests.interop.peers import HEARTBEAT_MS, SESSION_MS

DEADLINE_S = 30.0


def consumer(bootstrap_servers: str, *topics: str, **options: Any) -> kohort.KafkaConsumer:
    """A consumer from the beginning of the topics, with quick heartbeats."""
    defaults = {
        "bootstrap_servers": bootstrap_servers,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "enable_auto_commit": False,
    }
    return kohort.KafkaConsumer(*topics, **defaults | options)


def read(consumer: kohort.KafkaConsumer, count: int) -> list[kohort.ConsumerRecord[Any, Any]]:
    """Poll until there are ``count`` records, and fail if there are more."""
    records: list[kohort.ConsumerRecord[Any, Any]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records: {records[-3:]}"
        for some in consumer.poll(timeout_ms=500).values():
            records += some
    assert len(records) == count
    return records


def join(*consumers: kohort.KafkaConsumer, sizes: tuple[int, ...]) -> None:
    """Poll one after the other, returning no records, until they own so many partitions each."""
    deadline = time.monotonic() + DEADLINE_S
    while tuple(len(one.assignment()) for one in consumers) != sizes:
        assert time.monotonic() < deadline, [one.assignment() for one in consumers]
        for one in consumers:
            one.pause(*one.assignment())
            assert one.poll(timeout_ms=50) == {}
    for one in consumers:
        one.resume(*one.assignment())
