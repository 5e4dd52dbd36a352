"""A member of a group in a process of its own, which may be stopped, killed or told to leave.

Tells what it does on standard output, a JSON object a line; ``at`` is ``time.monotonic()``, one
clock for all processes of a machine. A record is told before the commit that covers it. It leaves
on SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.errors import KafkaError

HEARTBEAT_MS = 300
POLL_MS = 100


def tell(event: str, **more: Any) -> None:
    """Tell the test something."""
    message = {"event": event, "at": time.monotonic(), **more}
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class TellingListener(ConsumerRebalanceListener):
    """Tells of every call, and of the commit that it tries for partitions that are lost."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        tell("assigned", partitions=numbers(assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        tell("revoked", partitions=numbers(revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        tell("lost", partitions=numbers(lost))
        commit(self._consumer, dict.fromkeys(lost, 0))


def numbers(partitions: Collection[TopicPartition]) -> list[int]:
    """Of the one topic."""
    return sorted(tp.partition for tp in partitions)


def commit(consumer: KafkaConsumer, offsets: dict[TopicPartition, int] | None = None) -> None:
    """Commit, and tell when that is refused."""
    try:
        consumer.commit(offsets)
    except KafkaError as error:
        tell("refused", error=type(error).__name__)


def main(bootstrap_servers: str, topic: str, group: str, session_ms: str, *assignors: str) -> None:
    """Read, tell and commit until told to leave."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    tell("started", pid=os.getpid())
    with KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=int(session_ms),
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=list(assignors),
    ) as consumer:
        consumer.subscribe([topic], listener=TellingListener(consumer))
        while not leaving.is_set():
            records = consumer.poll(timeout_ms=POLL_MS)
            if places := [(r.partition, r.offset) for some in records.values() for r in some]:
                tell("read", places=places)
                commit(consumer)
    tell("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
