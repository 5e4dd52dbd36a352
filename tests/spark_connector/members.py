"""Streaming queries as members of a group, without Spark."""

from __future__ import annotations

import threading
from typing import Any

from kohort import KafkaConsumer
from kohort.testing import Cluster
from tests.spark_connector.reading import Query, options

GROUP = "billing"
DEADLINE = 90.0


def member_options(cluster: Cluster, **given: object) -> dict[str, str]:
    """Return the options of a query in the group, with a short heartbeat interval."""
    chosen = {
        "kafka_group_id": GROUP,
        "startingOffsets": "earliest",
        "kafka_heartbeat_interval_ms": 100,
    }
    return options(cluster, **(chosen | given))


def member(cluster: Cluster, **given: object) -> Query:
    """Return a query in the group that has not started."""
    return Query(member_options(cluster, **given))


def plain(cluster: Cluster, **given: Any) -> KafkaConsumer:
    """Return a consumer of the same group that is no query."""
    chosen: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 100,
    }
    return KafkaConsumer("orders", **(chosen | given))


def committed(cluster: Cluster, group: str = GROUP) -> dict[int, int]:
    """Return the committed offsets by partition, of a group that reads one topic."""
    return {tp.partition: at.offset for tp, at in cluster.committed(group).items()}


def owned(query: Query) -> set[int]:
    """Return the partitions that the query may read now."""
    return {tp.partition for tp in query.reader._driver._partitions.readable()}


def held_back(query: Query) -> set[int]:
    """Return the partitions of a revocation that waits for the end of a micro-batch."""
    partitions = query.reader._driver._partitions
    with partitions._changed:
        return {tp.partition for tp in partitions._revoking}


def owned_by_group(query: Query) -> set[int]:
    """Return the partitions that the group has assigned to the query, known to it or not."""
    partitions = query.reader._driver._partitions
    with partitions._changed:
        return {tp.partition for tp in partitions._owned}


class Polling:
    """A plain consumer that a thread polls, and the values that it returned."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.values: list[Any] = []
        self.assigned: set[int] = set()
        self._consumer = consumer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._consumer:
            while not self._over.is_set():
                for records in self._consumer.poll(50).values():
                    self.values += [record.value for record in records]
                self.assigned = {tp.partition for tp in self._consumer.assignment()}

    def __enter__(self) -> Polling:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._thread.join()
