"""Members in separate processes, seen from the test: assignments, records, and their times."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.interop import reporting_member
from tests.interop.brokers import QUIET, TIMEOUT_S
from tests.interop.waiting import wait_until
from tests.support.java_tools import RunningTool

Place = tuple[int, int]


class ReportingMember:
    """One member. The end of the test ends its process."""

    def __init__(self, *arguments: str) -> None:
        self.tool = RunningTool(sys.executable, reporting_member.__file__, *arguments)
        self._events: list[dict[str, Any]] = []
        self._parsed = 0
        self._leaving = False

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events until now."""
        lines = self.tool.lines
        while self._parsed < len(lines):
            self._events.append(json.loads(lines[self._parsed]))
            self._parsed += 1
        return self._events

    def reported(self, event: str) -> list[dict[str, Any]]:
        """Return the events of one kind."""
        return [one for one in self.events if one["event"] == event]

    @property
    def owned(self) -> frozenset[int]:
        """Partitions that it owns, by its events."""
        owned: frozenset[int] = frozenset()
        for one in self.events:
            if one["event"] == "assigned":
                owned |= frozenset(one["partitions"])
            elif one["event"] in ("revoked", "lost"):
                owned -= frozenset(one["partitions"])
        return owned

    @property
    def settled_at(self) -> float:
        """Time of its last assignment."""
        return max((one["at"] for one in self.reported("assigned")), default=0.0)

    @property
    def reads(self) -> list[list[Place]]:
        """Records of each poll."""
        return [[(p, o) for p, o in one["places"]] for one in self.reported("read")]

    @property
    def refused(self) -> set[Place]:
        """Records of the polls whose commit was refused, by a rebalance of a classic group."""
        refused: set[Place] = set()
        latest: set[Place] = set()
        for one in self.events:
            if one["event"] == "read":
                latest = {(p, o) for p, o in one["places"]}
            elif one["event"] == "refused":
                refused |= latest
        return refused

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the member's process."""
        os.kill(self.reported("started")[0]["pid"], number)

    def start_leaving(self) -> None:
        """Let it leave normally. Calling it again does nothing."""
        if not self._leaving:
            self._leaving = True
            self.signal(signal.SIGTERM)

    def leave(self) -> None:
        """Let it leave and wait until its process has ended."""
        self.start_leaving()
        wait_until(lambda: not self.tool.is_running, explain=lambda: self.tool.errors)
        self.tool.kill()  # only its last events are still read
        assert self.reported("left"), self.tool.errors


def settled(members: Iterable[ReportingMember], partitions: int) -> bool:
    """True if each member owns something, and together they own every partition once."""
    owned = [member.owned for member in members]
    together = sorted(itertools.chain.from_iterable(owned))
    return all(owned) and together == list(range(partitions))


def read_count(members: Iterable[ReportingMember]) -> Counter[Place]:
    """Return how often each record was read."""
    return Counter(place for member in members for polled in member.reads for place in polled)


class SteadyFeed:
    """Feed that writes ``rate`` records a second in a separate thread, each exactly once."""

    def __init__(self, bootstrap_servers: str, topic: str, rate: int) -> None:
        self.written: list[Place] = []
        self._failed: list[Any] = []
        self._unplaced = 0
        self._servers = bootstrap_servers
        self._topic = topic
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": "2",
                "enable.idempotence": "true",
                "partitioner": "random",
                "sticky.partitioning.linger.ms": "0",
                **QUIET,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until all records are stored."""
        self._over.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0 and not self._failed, self._failed
        if self._unplaced:
            missing = self._places() - set(self.written)
            assert len(missing) == self._unplaced, "a record was written twice"
            self.written += missing
            self._unplaced = 0

    def _places(self) -> set[Place]:
        """Return every offset of the topic. No other producer writes to it."""
        partitions = (
            self._producer.list_topics(self._topic, TIMEOUT_S).topics[self._topic].partitions
        )
        reader = Consumer({"bootstrap.servers": self._servers, "group.id": "ends", **QUIET})
        try:
            return {
                (partition, offset)
                for partition in partitions
                for offset in range(
                    reader.get_watermark_offsets(
                        TopicPartition(self._topic, partition), timeout=TIMEOUT_S
                    )[1]
                )
            }
        finally:
            reader.close()

    def _run(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._over.is_set():
            due = int((time.monotonic() - started) * self._rate)
            for _ in range(due - sent):
                self._producer.produce(self._topic, b"x" * 20, on_delivery=self._delivered)
            sent = due
            self._producer.poll(0)
            self._over.wait(0.005)

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            # A restarted broker reports a record as a duplicate without its offset.
            self._unplaced += 1
            return
        self.written.append((partition, offset))
