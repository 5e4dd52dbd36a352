"""process(offsets=SqlOffsets(...)) with threads, on SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.errors import ConfigurationError
from kohort.processing import Batch, Retry, SqlOffsets, process
from kohort.testing import Cluster
from tests.processing.databases import Database, duckdb_at, postgres, sqlite_at

Record = ConsumerRecord[bytes, bytes]
RECORDS = 200
PARTITIONS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgres() as database:
        yield database


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return sqlite_at(tmp_path / "results.db")
    if request.param == "duckdb":
        return duckdb_at(tmp_path / "results.duckdb")
    server: Database = request.getfixturevalue("server")
    server.change("DELETE FROM results")
    server.change("DROP TABLE IF EXISTS kohort_offsets")
    return server


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": PARTITIONS}) as cluster:
        values = [f"{n}" for n in range(RECORDS // PARTITIONS)]
        for partition in range(PARTITIONS):
            cluster.produce("orders", values, partition=partition)
        yield cluster


EVERY = sorted((part, n) for part in range(PARTITIONS) for n in range(RECORDS // PARTITIONS))


def options(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
    }


class Inserts:
    """A handler that inserts its records, and calls ``stop`` with the last record."""

    def __init__(self, database: Database, stop: Callable[[], object]) -> None:
        self._database = database
        self._stop = stop
        self._ended: set[int] = set()
        """Partitions whose last record was inserted."""

    def __call__(self, load: Any, cursor: Any) -> None:
        records = load if isinstance(load, list) else [load]
        if isinstance(load, pyarrow.Table):
            columns = load.select(["partition", "offset", "value"]).to_pylist()
            rows = [(row["partition"], row["offset"], row["value"].decode()) for row in columns]
        else:
            rows = [(each.partition, each.offset, each.value.decode()) for each in records]
        cursor.executemany(self._database.insert, rows)
        if rows[-1][1] == RECORDS // PARTITIONS - 1:
            self._ended.add(rows[-1][0])
            if len(self._ended) == PARTITIONS:
                self._stop()


@pytest.mark.parametrize("batch", [None, Batch(30, 0.1), Batch(30, 0.1, columns=True)])
def test_each_record_is_stored_once(
    cluster: Cluster, database: Database, batch: Batch | None
) -> None:
    consumer = KafkaConsumer("orders", **options(cluster))
    inserts = Inserts(database, consumer.wakeup)
    retry = Retry(None, first=0.01)
    process(consumer, inserts, batch=batch, offsets=SqlOffsets(database.connect), retry=retry)
    assert database.results() == EVERY
    assert database.next_offsets() == dict.fromkeys(range(PARTITIONS), 100)
    assert [at.offset for at in cluster.committed("g").values()] == [100] * PARTITIONS


def test_two_live_owners_store_each_record_once(cluster: Cluster, database: Database) -> None:
    """Both have assigned all partitions themselves, so each is a zombie to the other."""
    consumers = [KafkaConsumer(**options(cluster)) for _ in range(3)]
    errors: list[BaseException] = []

    def stop() -> None:
        for consumer in consumers:
            consumer.wakeup()

    inserts = Inserts(database, stop)

    def own(consumer: KafkaConsumer[Any, Any]) -> None:
        try:
            process(
                consumer,
                inserts,
                batch=Batch(7, 0.05),
                offsets=SqlOffsets(database.connect),
                retry=Retry(None, first=0.01),
            )
        except BaseException as error:
            errors.append(error)
            stop()

    for consumer in consumers:
        consumer.assign([TopicPartition("orders", n) for n in range(PARTITIONS)])
    threads = [threading.Thread(target=own, args=(each,)) for each in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert database.results() == EVERY


@pytest.mark.anyio
async def test_a_plain_handler_runs_in_threads(cluster: Cluster, tmp_path: Path) -> None:
    database = sqlite_at(tmp_path / "results.db")
    consumer = AsyncKafkaConsumer("orders", **options(cluster))
    names: set[str] = set()

    class Named(Inserts):
        def __call__(self, load: Any, cursor: Any) -> None:
            names.add(threading.current_thread().name)
            super().__call__(load, cursor)

    inserts = Named(database, consumer.wakeup)
    offsets = SqlOffsets(database.connect)
    await process(consumer, inserts, batch=Batch(30, 0.1, columns=True), offsets=offsets)
    assert database.results() == EVERY
    assert threading.current_thread().name not in names


KILLED = """
import os, signal, sqlite3, sys
from kohort import KafkaConsumer
from kohort.processing import Batch, SqlOffsets, process

path, servers, at, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
calls = 0

def step():
    global calls
    calls += 1
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)

class Connection(sqlite3.Connection):
    def cursor(self):
        step()
        return super().cursor(Cursor)

    def commit(self):
        step()
        super().commit()
        step()

class Cursor(sqlite3.Cursor):
    def execute(self, *args):
        step()
        return super().execute(*args)

    def executemany(self, *args):
        step()
        return super().executemany(*args)

def connect():
    return sqlite3.connect(path, check_same_thread=False, timeout=60, factory=Connection)

def insert(records, cursor):
    rows = [(each.partition, each.offset, each.value.decode()) for each in records]
    cursor.executemany("INSERT INTO results VALUES (?, ?, ?)", rows)
    if rows[-1][1] == last:
        consumer.wakeup()

consumer = KafkaConsumer(
    "single", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest",
    group_protocol="classic", group_instance_id="one",
)
process(consumer, insert, batch=Batch(3, 0.5), offsets=SqlOffsets(connect, paramstyle="qmark"))
"""


CALLS = 29
"""Calls of the database until six records are stored in two batches."""


@pytest.mark.parametrize("at", range(1, CALLS + 1))
def test_a_killed_process_loses_and_repeats_nothing(tmp_path: Path, at: int) -> None:
    """The process is killed before each call of its database in turn, and after each commit."""
    (tmp_path / "killed.py").write_text(KILLED)
    database = sqlite_at(tmp_path / "results.db")
    with Cluster(topics={"single": 1}) as cluster:
        cluster.produce("single", list("abcdef"))
        command = [sys.executable, "killed.py", "results.db", cluster.bootstrap_servers]
        killed = subprocess.run([*command, f"{at}", "5"], check=False, cwd=tmp_path)
        assert killed.returncode == -signal.SIGKILL
        tables = database.rows("SELECT name FROM sqlite_master")
        if ("kohort_offsets",) in tables:
            assert len(database.results()) == database.next_offsets().get(0, 0)
        cluster.produce("single", "g")
        subprocess.run([*command, "0", "6"], check=True, cwd=tmp_path)
    assert database.results() == [(0, n) for n in range(7)]


def test_wrong_connections_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    class Unknown:
        def cursor(self) -> Any: ...
        def close(self) -> None: ...

    for connect, message in (
        (lambda: sqlite3.connect(path), "check_same_thread=False"),
        (
            lambda: sqlite3.connect(path, check_same_thread=False, isolation_level=None),
            "without autocommit",
        ),
        (Unknown, "does not know how the module .* writes parameters"),
    ):
        consumer = KafkaConsumer("orders", **options(cluster))
        with pytest.raises(ConfigurationError, match=message):
            process(consumer, print, offsets=SqlOffsets(connect))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": "key"}, "the store has one offset for a partition"),
        ({"order": "none"}, "the store has one offset for a partition"),
        ({"handler": None, "each_partition": print}, "a transaction needs the first and the last"),
        ({"offsets": SqlOffsets}, "use SqlOffsets, DeltaOffsets"),
        ({"offsets": 5}, "use SqlOffsets, DeltaOffsets"),
    ],
)
def test_options_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    consumer = KafkaConsumer("orders", group_id="g")
    with pytest.raises(ConfigurationError, match=message):
        process(consumer, **{"handler": print, "offsets": SqlOffsets(print), **wrong})


@pytest.mark.parametrize(
    "wrong", [{"connect": "results.db"}, {"table": "a b"}, {"table": 5}, {"paramstyle": "?"}]
)
def test_wrong_stores_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="SqlOffsets"):
        SqlOffsets(**{"connect": print, **wrong})
