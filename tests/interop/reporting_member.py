"""Member of a group in a separate process, which may be stopped, killed or end by SIGTERM.

It prints its events to standard output, a JSON object a line. ``at`` is ``time.monotonic()``, one
clock for all processes of a machine. A record is printed before the commit that covers it. The
member leaves on SIGTERM. Options are keywords of KafkaConsumer as a JSON object. One more of them,
``revoking_s``, is the time that the callback for revoked partitions takes.
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

POLL_MS = 100


def report(event: str, **more: Any) -> None:
    """Print an event for the test."""
    message = {"event": event, "at": time.monotonic(), **more}
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class ReportingListener(ConsumerRebalanceListener):
    """Listener that prints every call.

    It commits when partitions are revoked, because a classic group may have refused the commit
    after a poll. It also tries to commit lost partitions.
    """

    def __init__(self, consumer: KafkaConsumer, revoking_s: float) -> None:
        self._consumer = consumer
        self._revoking_s = revoking_s

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        report("assigned", partitions=numbers(assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        if self._revoking_s:
            report("revoking", partitions=numbers(revoked))
            threading.Event().wait(self._revoking_s)
        commit(self._consumer)
        report("revoked", partitions=numbers(revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        report("lost", partitions=numbers(lost))
        commit(self._consumer, dict.fromkeys(lost, 0))


def numbers(partitions: Collection[TopicPartition]) -> list[int]:
    """Return the partition numbers of the only topic."""
    return sorted(tp.partition for tp in partitions)


def commit(consumer: KafkaConsumer, offsets: dict[TopicPartition, int] | None = None) -> None:
    """Commit, and print a refusal."""
    try:
        consumer.commit(offsets)
    except KafkaError as error:
        report("refused", error=type(error).__name__)


def main(bootstrap_servers: str, topic: str, group: str, options: str) -> None:
    """Read, print and commit until SIGTERM."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    report("started", pid=os.getpid())
    keywords = json.loads(options)
    revoking_s = keywords.pop("revoking_s", 0.0)
    with KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **keywords,
    ) as consumer:
        consumer.subscribe([topic], listener=ReportingListener(consumer, revoking_s))
        while not leaving.is_set():
            records = consumer.poll(timeout_ms=POLL_MS)
            if places := [(r.partition, r.offset) for some in records.values() for r in some]:
                report("read", places=places)
                commit(consumer)
    report("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
