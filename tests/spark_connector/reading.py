"""The source without Spark: the same calls in the same order as Spark's, and pickled."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from kohort.spark_connector import KohortDataSource
from kohort.spark_connector._older_stream import OlderStreamReader
from kohort.testing import Cluster, ProducerRecord

Row = dict[str, Any]
DEADLINE = 90.0

ERROR = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("reason", "string"), ("next_offset", "long"), ("raw", "binary"))
    ],
}
ALL = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"


def options(cluster: Cluster, **given: object) -> dict[str, str]:
    """Return options for the cluster. ``kafka_group_id`` stands for ``kafka.group.id``."""
    chosen = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    if not {"subscribePattern", "assign"} & given.keys():
        chosen["subscribe"] = "orders"
    for name, value in given.items():
        dotted = name.replace("_", ".") if name.startswith("kafka_") else name
        chosen[dotted] = str(value).lower() if isinstance(value, bool) else str(value)
    return chosen


def source(given: dict[str, str]) -> KohortDataSource:
    """Return the source as Spark creates it, pickled and unpickled."""
    made = KohortDataSource(CaseInsensitiveDict(given))
    copy: KohortDataSource = pickle.loads(pickle.dumps(made))
    return copy


def schema(text: str) -> StructType:
    """Return a schema from ``name type, name type``, as Spark's parser does.

    The type ``error`` stands for that of the column of this name.
    """
    types: dict[str, Any] = {"int": "integer", "bigint": "long", "error": ERROR}
    fields = [column.split() for column in text.split(", ")]
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": types.get(kind, kind), "nullable": True, "metadata": {}}
                for name, kind in fields
            ],
        }
    )


def batch_reader(given: dict[str, str], columns: str = ALL) -> Any:
    """Return the reader of a batch query."""
    return source(given).reader(schema=schema(columns))


def stream_reader(given: dict[str, str], columns: str = ALL) -> Any:
    """Return the reader of a streaming query."""
    return source(given).streamReader(schema=schema(columns))


def ends(offset: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the ends of an offset, as a program that parses those of Spark's own source does."""
    return {topic: partitions for topic, partitions in offset.items() if partitions}


def kept(offset: dict[str, Any]) -> dict[str, Any]:
    """Return what an offset holds beside its ends."""
    (name,) = offset.keys() - ends(offset).keys()
    found: dict[str, Any] = json.loads(name.removeprefix("kohort:"))
    return found


def rows(reader: Any, partitions: list[Any]) -> Iterator[Row]:
    """Yield the rows of the tasks. Each task pickles its reader and its partition."""
    for partition in partitions:
        worker, task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in worker.read(task):
            yield from batch.to_pylist()


def read_batch(given: dict[str, str], columns: str = ALL) -> list[Row]:
    """Return the rows of a batch query."""
    reader = batch_reader(given, columns)
    found = list(rows(reader, reader.partitions()))
    return sorted(found, key=lambda row: (row.get("partition", 0), row.get("offset", 0)))


class Query:
    """A streaming query: its offset log, its commit log, its runs."""

    def __init__(self, given: dict[str, str], columns: str = ALL) -> None:
        self._given = given
        self._columns = columns
        self.offset_log: list[str] = []
        self.commit_log = 0
        self.batches: list[list[Row]] = []
        self.reader: Any = None

    def change(self, *removed: str, **given: str) -> None:
        """Change the options from the next run on."""
        kept = {name: value for name, value in self._given.items() if name not in removed}
        self._given = kept | given

    def start(self, available_now: bool = False) -> None:
        """Start a run with Spark's calls before the first batch, a replay included."""
        self.reader = stream_reader(self._given, self._columns)
        self._is_older = isinstance(self.reader, OlderStreamReader)
        if self._is_older:
            self._start_older()
            return
        self.reader.initialOffset()
        self._limit = self.reader.getDefaultReadLimit()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if len(self.offset_log) > self.commit_log:
            self._read(self.offset_log[-1])

    def _start_older(self) -> None:
        """Start a run as Spark 4.0 and 4.1 do."""
        if self.offset_log:
            latest = json.loads(self.offset_log[-1])
            assert self.reader.partitions(latest, latest) == []
        if len(self.offset_log) > self.commit_log:
            self._read(self.offset_log[-1])

    def stop(self) -> None:
        """End the run."""
        self.reader.stop()
        self.reader = None

    def trigger(self, *, finish: bool = True) -> bool:
        """Plan a batch and read it. Return False if there is none.

        ``finish=False`` leaves it unread for a replay.
        """
        if self._is_older:
            found = json.dumps(self.reader.latestOffset())
        else:
            start = json.loads(self._last())
            found = json.dumps(self.reader.latestOffset(start, self._limit))
        if found == self._last() and self.offset_log:
            return False
        self.offset_log.append(found)
        if finish:
            self._read(found)
        return True

    def finish(self) -> None:
        """Read the batch that was left unfinished."""
        self._read(self.offset_log[-1])

    def run_available_now(self, most: int = 50) -> None:
        """Run a whole run of ``trigger(availableNow=True)``."""
        self.start(available_now=True)
        while self.trigger():
            most -= 1
            assert most > 0, "the run does not end"
        self.stop()

    @property
    def is_member(self) -> bool:
        """True if it is in a group."""
        return "kafka.group.id" in self._given

    def values(self) -> list[bytes]:
        """Return all values of all batches."""
        return [row["value"] for batch in self.batches for row in batch]

    def end(self) -> dict[str, dict[str, int]]:
        """Return the end offsets of the latest batch."""
        return ends(json.loads(self.offset_log[-1]))

    def _last(self) -> str:
        return self.offset_log[-1] if self.offset_log else json.dumps(self.reader.initialOffset())

    def _read(self, end: str) -> None:
        start = self.offset_log[-2] if len(self.offset_log) > 1 else None
        before = json.loads(start) if start else self.reader.initialOffset()
        tasks = self.reader.partitions(before, json.loads(end))
        self.batches.append(list(rows(self.reader, tasks)))
        self.commit_log = len(self.offset_log)


def produce(cluster: Cluster, count: int, topic: str = "orders", partition: int = 0) -> list[bytes]:
    values = [b"%s-%d-%d" % (topic.encode(), partition, number) for number in range(count)]
    cluster.produce(topic, [ProducerRecord(value, partition=partition) for value in values])
    return values


def delete_before(cluster: Cluster, offset: int, topic: str = "orders", partition: int = 0) -> None:
    """Delete records as retention does."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    place = ConfluentPartition(topic, partition, offset)
    for future in admin.delete_records([place]).values():
        future.result(60)


def values(found: list[dict[str, Any]]) -> list[bytes]:
    return [row["value"] for row in found]


def open_transaction(cluster: Cluster, count: int) -> tuple[Producer, list[bytes]]:
    """Produce records in a transaction that stays open."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "orders"}
    )
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    made = [b"open-%d" % number for number in range(count)]
    for value in made:
        producer.produce("orders", value, partition=0)
    producer.flush(DEADLINE)
    return producer, made
