"""process(offsets=DeltaOffsets(...)) and IcebergOffsets: rows and offset in one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import ConfigurationError, OffsetConflictError, TopicRecreatedError
from kohort.processing import Batch, DeltaOffsets, IcebergOffsets, Retry, Skip, process
from kohort.processing.stores import StoredOffset, open_session, run_steps
from kohort.processing.stores._delta import DeltaSession
from kohort.processing.stores._iceberg import IcebergSession
from kohort.testing import Cluster, ProducerRecord

SCHEMA = pyarrow.schema([("part", pyarrow.int32()), ("place", pyarrow.int64())])
RECORDS, PARTITIONS = 60, 2
EVERY = sorted((part, n) for part in range(PARTITIONS) for n in range(RECORDS // PARTITIONS))
TP = TopicPartition("orders", 0)


class Killed(BaseException):
    """The end of a process, before or after a step of a commit."""


class Lake:
    """A table of rows with partition and offset."""

    def __init__(self, store: Any, read: Callable[[], pyarrow.Table]) -> None:
        self.store = store
        self._read = read

    def rows(self) -> list[tuple[int, int]]:
        return sorted((row["part"], row["place"]) for row in self._read().to_pylist())


def delta(path: Path) -> Lake:
    deltalake = pytest.importorskip("deltalake")
    deltalake.DeltaTable.create(str(path), schema=SCHEMA)

    def read() -> pyarrow.Table:
        # A reader of pyarrow's datasets can abort the process at its end: its threads call Python.
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
        return pyarrow.table(query.execute("SELECT * FROM t"))

    return Lake(DeltaOffsets(str(path)), read)


def iceberg(path: Path) -> Lake:
    pytest.importorskip("pyiceberg")
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    path.mkdir()
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{path}/c.db", warehouse=f"file://{path}")
    catalog.create_namespace("lake")
    catalog.create_table("lake.rows", schema=SCHEMA)

    def load() -> Any:
        return catalog.load_table("lake.rows")

    return Lake(IcebergOffsets(load), lambda: load().scan().to_arrow())


@pytest.fixture(params=[delta, iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": PARTITIONS}) as cluster:
        for partition in range(PARTITIONS):
            values = [f"{n}" for n in range(RECORDS // PARTITIONS)]
            cluster.produce("orders", values, partition=partition)
        yield cluster


def consumer_of(cluster: Cluster, group_id: str = "g") -> KafkaConsumer[bytes, bytes]:
    return KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
    )


def stop_when_stored(lake: Lake, consumer: KafkaConsumer[Any, Any], rows: int) -> threading.Thread:
    """Wake the consumer up when the table has this number of rows."""

    def wait(batches: int = 10**6) -> None:
        for _ in range(batches):
            if len(lake.rows()) >= rows:
                consumer.wakeup()
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def rows_of(table: pyarrow.Table) -> pyarrow.Table:
    return pyarrow.table(
        {"part": table["partition"].cast("int32"), "place": table["offset"]}, schema=SCHEMA
    )


def test_each_record_is_stored_once(cluster: Cluster, lake: Lake) -> None:
    for count in (RECORDS, RECORDS + 1):
        consumer = consumer_of(cluster)
        thread = stop_when_stored(lake, consumer, count)
        process(consumer, rows_of, batch=Batch(20, 0.1, columns=True), offsets=lake.store)
        thread.join()
        assert len(lake.rows()) == count
        cluster.produce("orders", "x", partition=0)
    assert lake.rows() == sorted([*EVERY, (0, RECORDS // PARTITIONS)])


class Steps:
    """Count the steps of commits to tables, and die at the ``at``-th and at all later ones."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int | None) -> None:
        self.count = 0
        self._at = at
        places: list[tuple[Any, str]] = [(DeltaSession, "_load"), (DeltaSession, "_commit")]
        places += [(IcebergSession, "_load"), (IcebergSession, "_commit")]
        with suppress(ImportError):
            from pyiceberg.table import Transaction

            names = "append", "set_properties", "commit_transaction"
            places += [(Transaction, name) for name in names]
        for kind, name in places:
            patch.setattr(kind, name, self._stepping(getattr(kind, name)))

    def _stepping(self, method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self._step()
            result = method(*args, **options)
            self._step()
            return result

        return call

    def _step(self) -> None:
        self.count += 1
        if self._at is not None and self.count >= self._at:
            raise Killed


@pytest.mark.long  # a table and a consumer for each step
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [delta, iceberg])
def test_a_kill_at_any_step_loses_and_repeats_nothing(
    cluster: Cluster, tmp_path: Path, make: Callable[[Path], Lake]
) -> None:
    rows = RECORDS // PARTITIONS

    def run(at: int | None = None) -> bool:
        """Process all rows. Return True if that was killed."""
        consumer = consumer_of(cluster, group_id=group)
        consumer.unsubscribe()
        consumer.assign([TP])

        def rows_until_last(table: pyarrow.Table) -> pyarrow.Table:
            if table["offset"][-1].as_py() == rows - 1:
                consumer.wakeup()
            return rows_of(table)

        with pytest.MonkeyPatch.context() as patch:
            steps = Steps(patch, at)
            batch = Batch(rows // 2, 0.1, columns=True)
            with suppress(Killed):
                process(consumer, rows_until_last, batch=batch, offsets=lake.store, drain=60)
        return at is not None and steps.count >= at

    at, is_killed = 0, True
    while is_killed:
        at += 1
        group, lake = f"g{at}", make(tmp_path / f"{at}")
        is_killed = run(at)
        found = run_steps(open_session(lake.store, group, is_async=False).read([TP]))
        stored = found[TP].offset if TP in found else 0
        assert lake.rows() == [(0, n) for n in range(stored)]
        if stored < rows:
            run()
        assert lake.rows() == [(0, n) for n in range(rows)]
    assert at > 10


def test_a_failed_batch_leaves_nothing_and_is_retried(cluster: Cluster, lake: Lake) -> None:
    failed: set[int] = set()

    def fail_once(table: pyarrow.Table) -> pyarrow.Table:
        if (partition := table["partition"][0].as_py()) not in failed:
            failed.add(partition)
            raise OSError
        return rows_of(table)

    consumer = consumer_of(cluster)
    thread = stop_when_stored(lake, consumer, RECORDS)
    batch, retry = Batch(20, 0.1, columns=True), Retry(2, first=0.01)
    process(consumer, fail_once, batch=batch, retry=retry, offsets=lake.store)
    thread.join()
    assert lake.rows() == EVERY
    assert failed == set(range(PARTITIONS))


def test_retention_past_the_stored_offset_is_passed(cluster: Cluster, lake: Lake) -> None:
    def produce(*timestamps: int | None) -> None:
        for timestamp in timestamps:
            cluster.produce("old", [ProducerRecord("x", timestamp=timestamp)])

    def store(rows: int) -> None:
        consumer = consumer_of(cluster)
        consumer.subscribe(["old"])
        thread = stop_when_stored(lake, consumer, rows)
        process(consumer, rows_of, batch=Batch(2, 0.1, columns=True), offsets=lake.store)
        thread.join()

    cluster.create_topic("old", configs={"retention.ms": "100000"})
    produce(1, 1)
    store(2)
    produce(1, 1, None)
    cluster.delete_old_records("old")
    store(3)
    assert lake.rows() == [(0, 0), (0, 1), (0, 4)]


def test_a_batch_without_rows_and_a_skipped_one_are_passed(cluster: Cluster, lake: Lake) -> None:
    calls: list[int] = []

    def handler(records: list[Any]) -> Any:
        calls.append(records[0].partition)
        if len(calls) == 2:
            consumer.wakeup()
        if records[0].partition == 0:
            raise Skip
        return None

    consumer = consumer_of(cluster)
    process(consumer, handler, batch=Batch(30, 60), offsets=lake.store)
    assert sorted(calls) == [0, 1]
    found = run_steps(open_session(lake.store, "g", is_async=False).read([TP]))
    assert found[TP].offset == 30
    assert lake.rows() == []


def test_a_recreated_topic_is_an_error(cluster: Cluster, lake: Lake) -> None:
    consumer = consumer_of(cluster)
    thread = stop_when_stored(lake, consumer, RECORDS)
    process(consumer, rows_of, batch=Batch(20, 0.1, columns=True), offsets=lake.store)
    thread.join()
    cluster.delete_topic("orders")
    cluster.create_topic("orders", PARTITIONS)
    with pytest.raises(TopicRecreatedError):
        process(consumer_of(cluster), rows_of, batch=Batch(columns=True), offsets=lake.store)


def test_a_commit_between_read_and_commit_is_a_conflict(lake: Lake) -> None:
    first, second = (open_session(lake.store, "g", is_async=False) for _ in range(2))
    begin = StoredOffset(0, str(uuid4()))
    run_steps(first.begin(TP, begin))
    row = pyarrow.table({"part": [0], "place": [7]}, schema=SCHEMA)

    def overtaken(cursor: Any) -> Any:
        run_steps(second.write(TP, begin, 8, lambda cursor: row))
        return pyarrow.table({"part": [0], "place": [9]}, schema=SCHEMA)

    with pytest.raises(OffsetConflictError):
        run_steps(first.write(TP, begin, 10, overtaken))
    assert lake.rows() == [(0, 7)]
    assert run_steps(first.read([TP])) == {TP: StoredOffset(8, begin.topic_id)}
    with pytest.raises(OffsetConflictError):
        run_steps(first.write(TP, begin, 10, None))


def test_two_live_owners_store_each_record_once(cluster: Cluster, lake: Lake) -> None:
    consumers = []
    for _ in range(2):
        consumer = consumer_of(cluster)
        consumer.unsubscribe()
        consumer.assign([TP])
        consumers.append(consumer)
    errors: list[BaseException] = []

    def own(consumer: KafkaConsumer[Any, Any]) -> None:
        try:
            process(consumer, rows_of, batch=Batch(5, 0.1, columns=True), offsets=lake.store)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=own, args=(each,)) for each in consumers]
    threads += [stop_when_stored(lake, each, RECORDS // PARTITIONS) for each in consumers]
    for thread in threads[:2]:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert lake.rows() == [(0, n) for n in range(RECORDS // PARTITIONS)]


@pytest.mark.parametrize("store", [DeltaOffsets("lake"), IcebergOffsets(print)])
@pytest.mark.anyio
async def test_a_coroutine_function_is_refused(store: Any) -> None:
    async def handler(records: list[Any]) -> None: ...

    consumer = AsyncKafkaConsumer("orders", group_id="g")
    with pytest.raises(ConfigurationError, match="needs a plain function"):
        await process(consumer, handler, batch=Batch(), offsets=store)


def test_a_table_that_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="returns the table"):
        IcebergOffsets("lake.rows")  # type: ignore[arg-type]
