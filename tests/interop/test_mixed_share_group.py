"""A share group of four clients whose members come and go cleanly: each record is accepted once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from confluent_kafka import ShareConsumer as ConfluentShareConsumer

from kohort import KafkaAdminClient, ShareConsumer
from tests.interop.brokers import Broker
from tests.interop.producers import with_confluent
from tests.interop.waiting import look_again_soon, wait_until
from tests.support.java_tools import RunningTool, java_command

pytestmark = [pytest.mark.real_kafka, pytest.mark.long, pytest.mark.timeout(1200)]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PARTITIONS = 4
RECORDS = 20_000
SLICE = 500
"""Records that are written to a partition at once."""
AHEAD = 4_000
"""Written records that are not accepted yet, at most, so that each member gets some."""
LIFE = 1_500
"""Records after which a member leaves and another one comes."""
ENDED = 0, 143, -15
"""Exit statuses of a member. Others than 0 are of SIGTERM, the last one before it has begun."""


class Ledger:
    """The records that all members have accepted."""

    def __init__(self, servers: str, topic: str, franz_go: str) -> None:
        self.servers, self.topic, self.franz_go = servers, topic, franz_go
        self.accepted: Counter[bytes] = Counter()
        self.by: Counter[str] = Counter()
        self.lives: Counter[str] = Counter()
        self.has_failed = False
        """True after the failure of a member, which ends the others."""
        self._lock = threading.Lock()

    def add(self, name: str, values: list[bytes]) -> None:
        with self._lock:
            self.accepted.update(values)
            self.by[name] += len(values)

    @property
    def is_over(self) -> bool:
        return self.has_failed or len(self.accepted) >= RECORDS

    def has_room(self, written: int) -> bool:
        """True if more records may be written than this number."""
        return self.has_failed or written < len(self.accepted) + AHEAD

    def fill(self, name: str, live: Callable[[Ledger], Iterator[list[bytes]]]) -> None:
        """Let members live one after the other, until all records are accepted or one fails."""
        try:
            while not self.is_over:
                self.lives[name] += 1
                for values in live(self):
                    self.add(name, values)
        except BaseException:
            self.has_failed = True
            raise


def kohort(ledger: Ledger) -> Iterator[list[bytes]]:
    options: dict[str, Any] = {"bootstrap_servers": ledger.servers, "group_id": ledger.topic}
    taken = 0
    with ShareConsumer(ledger.topic, max_poll_records=100, **options) as consumer:
        while taken < LIFE and not ledger.is_over:
            found = consumer.poll(timeout_ms=1_000).values()
            values = [record.value or b"" for records in found for record in records]
            assert consumer.commit(timeout_ms=60_000) == {}
            yield values
            taken += len(values)


def confluent(ledger: Ledger) -> Iterator[list[bytes]]:
    settings: dict[str, Any] = {"bootstrap.servers": ledger.servers, "group.id": ledger.topic}
    consumer = ConfluentShareConsumer({**settings, "max.poll.records": 100})
    consumer.subscribe([ledger.topic])
    taken = 0
    while taken < LIFE and not ledger.is_over:
        values = [message.value() or b"" for message in consumer.poll(1.0) or ()]
        assert set(consumer.commit_sync(timeout=60).values()) <= {None}
        yield values
        taken += len(values)
    consumer.close()


def lines(ledger: Ledger, *command: str) -> Iterator[list[str]]:
    """Run a member in a process, and yield what it prints until its end."""
    tool = RunningTool(*command)
    seen = 0
    while tool.is_running and not ledger.is_over:
        look_again_soon()
        printed = tool.lines[seen:]
        seen += len(printed)
        yield printed
    assert tool.end() in ENDED, tool.errors
    yield tool.lines[seen:]


def java(ledger: Ledger) -> Iterator[list[bytes]]:
    options = "--bootstrap-server", ledger.servers, "--topic", ledger.topic
    command = java_command(CONSOLE, *options, "--group", ledger.topic, "--max-messages", LIFE)
    for printed in lines(ledger, *command):
        yield [line.encode() for line in printed]


def franz_go(ledger: Ledger) -> Iterator[list[bytes]]:
    flags = {"bootstrap": ledger.servers, "topic": ledger.topic, "group": ledger.topic}
    words = [f"-{name}={value}" for name, value in flags.items()]
    for printed in lines(ledger, ledger.franz_go, *words, f"-count={LIFE}", "queue"):
        yield [json.loads(line)["value"].encode() for line in printed]


CLIENTS = {"kohort": kohort, "confluent-kafka": confluent, "Java": java, "franz-go": franz_go}


def test_each_record_is_accepted_once_by_one_client(
    broker: Broker, unique: Callable[[str], str], program: str
) -> None:
    topic = broker.create_topic(unique("jobs"), PARTITIONS)
    broker.configure_group(topic, {"share.auto.offset.reset": "earliest"})
    ledger = Ledger(broker.bootstrap_servers, topic, program)
    with ThreadPoolExecutor() as pool:
        members = [*CLIENTS.items(), ("kohort", kohort)]  # more than partitions, which they share
        running = [pool.submit(ledger.fill, *member) for member in members]
        try:
            wait_for_members(ledger, len(members))
            write(ledger)
        except BaseException:
            ledger.has_failed = True
            raise
        finally:
            for future in running:
                future.result()
    print(dict(ledger.by), dict(ledger.lives))
    assert ledger.accepted == Counter(b"%d" % number for number in range(RECORDS))
    assert ledger.by.keys() == CLIENTS.keys()
    assert all(ledger.by.values())


def wait_for_members(ledger: Ledger, count: int) -> None:
    """Wait until all clients are members, so that each of them gets records."""
    with KafkaAdminClient(bootstrap_servers=ledger.servers) as admin:

        def joined() -> int:
            described = admin.describe_groups(ledger.topic)
            return sum(len(group.members) for group in described.values())

        wait_until(lambda: ledger.has_failed or joined() == count)


def write(ledger: Ledger) -> None:
    """Write the records, a little ahead of the members."""
    for first in range(0, RECORDS, SLICE):
        wait_until(partial(ledger.has_room, first))
        pairs = [(b"k", b"%d" % number) for number in range(first, first + SLICE)]
        partition = first // SLICE % PARTITIONS
        with_confluent(ledger.servers, ledger.topic, partition, "none", pairs, idempotent="true")
