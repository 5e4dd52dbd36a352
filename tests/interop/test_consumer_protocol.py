"""Groups of kohort's members under the consumer group protocol of KIP-848."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kohort import KafkaConsumer
from tests.interop.brokers import Broker
from tests.interop.waiting import wait_until

PARTITIONS = 4
Unique = Callable[[str], str]


class PollingMember:
    """Consumer in a thread that polls until it leaves."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        self.values: list[bytes | None] = []
        self.owned: frozenset[int] = frozenset()
        self._servers, self._topic, self._group = servers, topic, group
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with KafkaConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=self._group,
            group_protocol="consumer",
            auto_offset_reset="earliest",
        ) as consumer:
            while not self._leaving.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    self.values += [record.value for record in records]
                self.owned = frozenset(tp.partition for tp in consumer.assignment())

    def leave(self) -> None:
        """Leave the group and wait for the end of the thread."""
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.real_kafka
def test_second_member_gets_half_and_gives_it_back(apache: Broker, unique: Unique) -> None:
    topic, group = apache.create_topic(unique("halves"), PARTITIONS), unique("halves")
    servers = apache.bootstrap_servers
    for number in range(20):
        apache.write(topic, b"%d" % number, partition=number % PARTITIONS)
    first = PollingMember(servers, topic, group)
    wait_until(lambda: len(first.owned) == PARTITIONS)
    second = PollingMember(servers, topic, group)
    wait_until(lambda: (len(first.owned), len(second.owned)) == (2, 2))
    for number in range(20, 40):
        apache.write(topic, b"%d" % number, partition=number % PARTITIONS)
    wait_until(lambda: len(first.values) + len(second.values) == 40)
    second.leave()
    wait_until(lambda: len(first.owned) == PARTITIONS)
    first.leave()
    values = [int(value or b"-1") for value in first.values + second.values]
    assert sorted(values) == list(range(40))
    assert sum(apache.committed(group).values()) == 40
