"""Member of the demo's group, in a separate operating system process.

The process reports each event on standard output as one line of JSON. A record is reported before
the commit that covers it, so every committed record has been reported. The process leaves the group
on SIGTERM or when the demo closes its standard input.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Collection
from typing import Any

from examples.demo.members import SESSION_MS
from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.errors import RebalanceInProgressError


def report(**message: Any) -> None:
    """Send a report to the demo."""
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


class ReportingListener(ConsumerRebalanceListener):
    """Listener that reports every call and commits before partitions are revoked."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.uncommitted = False
        """True if reported records are not committed yet."""
        self._consumer = consumer

    def commit(self) -> None:
        """Commit reported records, or leave them for the next poll() during a rebalance."""
        if self.uncommitted:
            try:
                self._consumer.commit()
            except RebalanceInProgressError:
                return
            self.uncommitted = False

    def _report_call(self, callback: str, partitions: Collection[TopicPartition]) -> None:
        report(event=callback, partitions=sorted(tp.partition for tp in partitions))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._report_call("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.commit()
        self._report_call("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._report_call("lost", lost)


def main(bootstrap_servers: str, topic: str, group: str, pace: str, name: str) -> None:
    """Read and commit until the order to leave, at most ``pace`` records a second."""
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo handles Ctrl-C

    def watch() -> None:
        sys.stdin.read()
        leaving.set()

    threading.Thread(target=watch, daemon=True).start()
    with KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        group_protocol="auto",  # the consumer protocol, as the cluster has it enabled
        consumer_session_timeout_ms=SESSION_MS,
        enable_auto_commit=False,
        max_poll_records=max(1, min(2_000, int(float(pace) / 10))),
    ) as consumer:
        listener = ReportingListener(consumer)
        consumer.subscribe([topic], listener=listener)
        while listener.uncommitted or not leaving.is_set():
            records = consumer.poll(timeout_ms=200)
            rows = []
            for tp, batch in records.items():
                for record in batch:
                    flight = json.loads(record.value or b"")
                    rows.append(
                        (tp.partition, record.offset, flight["carrier"], flight["dep_delay"])
                    )
            if rows:
                report(event="read", records=rows)
                listener.uncommitted = True
                leaving.wait(len(rows) / float(pace))  # stands for the work of a real member
            listener.commit()
    report(event="left")


if __name__ == "__main__":
    main(*sys.argv[1:])
